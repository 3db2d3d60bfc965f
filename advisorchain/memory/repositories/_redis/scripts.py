"""What the methods do inside Redis, one atomic script a call."""

from __future__ import annotations

from typing import Final

from advisorchain.memory.repositories._redis.lua import Script

__all__ = ["ACQUIRE", "APPEND", "DELETE", "PAGE", "RECALL", "RELEASE", "TIME"]

# KEYS: head, log, turns, ids, ends[, lease]. ARGV: clock, turn id, incarnation, expected, token, ttl, max_messages, id,
# new incarnation, and from ROWS on the rows without what only the server knows: sequence, question, time.
APPEND: Final = Script("""
local k, lease, now, ROWS = keys(1), KEYS[6], time(), 10
local given_clock, turn, begun, expected, token, ttl, most, id, life = unpack(ARGV, 1, ROWS - 1)
local at = clock(given_clock, now)
local m = found(k.head, k.log, at)
if begun ~= '' and begun ~= m.inc and begun ~= m.ended then
  if begun == m.before and call('ZSCORE', k.turns, turn) then return m.rev end
  return {DELETED}
end
if m.inc ~= '0' and call('ZSCORE', k.turns, turn) then return m.rev end
if token ~= '' and call('HGET', lease, 'token') ~= token then return {LEASE_LOST} end
if expected ~= '' and tonumber(expected) ~= m.rev then return {OTHER_REVISION, m.rev} end
if m.inc == '0' then
  m.before = begun == '' and '0' or begun
  begin(k, m, id, life, now)
end
-- The digest of a system message; nil: the row is of another one.
local function digest_of(row) return string.match(row, '^s(%x+)') end
local known, own, decides = {}, {}, false
for digest in string.gmatch(m.systems, ':(%x+)') do known[digest] = true end
for place = ROWS, #ARGV do
  local digest = digest_of(ARGV[place])
  if digest then
    own[digest] = true
    decides = decides or not known[digest]
  end
end
if decides then m.systems = '' end
local first = m.next
for place = ROWS, #ARGV do
  local row, lane = ARGV[place], SPOKEN
  local digest = digest_of(row)
  if digest then
    lane = REPEATED
    if decides and own[digest] then
      lane, own[digest] = DECIDING, nil
      m.systems = m.systems .. text(m.next) .. ':' .. digest .. ' '
    end
  else
    m.spoken = m.spoken + 1
    if string.sub(row, 1, 1) == 'u' then m.question = m.next end
  end
  call('ZADD', k.log, score(lane, m.next), table.concat({text(m.next), text(m.question), text(now), row}, ' '))
  m.next = m.next + 1
end
call('ZADD', k.turns, text(first), turn)
m.size = m.size + m.next - first
m.rev = m.rev + 1
trim(k, m, most)
store(k, m, id, ttl, at, now)
return m.rev
""")

# KEYS: head, log. ARGV: clock, last, before. Gives counts, then the rows of tail (newest first), systems, question, summary.
RECALL: Final = Script(
    """
local head, log = KEYS[1], KEYS[2]
local given_clock, last, given_before = unpack(ARGV)
local m = found(head, log, clock(given_clock, given_clock == '' and time() or 0))
if m.inc == '0' then return {} end
local before = tonumber(given_before)
local tail = newest(log, SPOKEN, before or LANE - 1, 0, last == '' and -1 or last)
local answer = {''}
for _, row in ipairs(tail) do answer[#answer + 1] = row end
local function add(part)
  for _, row in ipairs(part) do answer[#answer + 1] = row end
  return #part
end
local systems, cut = {}, 0
if m.systems ~= '' then
  if not before or tonumber(string.match(m.systems, '(%d+):%x+ $')) < before then
    systems = rows(log, DECIDING, string.match(m.systems, '^%d+'), LANE - 1)
  else
    local offset, turns, last_turn = 0, 0, nil
    cut = 1
    while turns < 3 do
      local part = newest(log, DECIDING, before, offset, 16)
      for _, row in ipairs(part) do
        local turn = turn_of(row)
        if turn ~= last_turn then turns, last_turn = turns + 1, turn end
        if turns < 3 then systems[#systems + 1] = row end
      end
      if #part < 16 then break end
      offset = offset + 16
    end
  end
end
local many_systems, questions, summaries = add(systems), 0, 0
if #tail > 0 then
  local sequence, question = string.match(tail[#tail], '^(%d+) (%d+)')
  if question ~= '0' and question ~= sequence then questions = add(rows(log, SPOKEN, question, question + 1)) end
end
if m.summary > 0 then summaries = add(newest(log, SUMMARY, before or LANE - 1, 0, 1)) end
local counts = {text(m.rev), m.inc, text(m.size), #tail, many_systems, questions, summaries, cut, text(m.edit)}
answer[1] = table.concat(counts, ' ')
return answer
""",
    reads=True,
)

# KEYS: head, log. ARGV: clock, place, most, newest first, incarnation or ''. Gives counts, then rows.
PAGE: Final = Script(
    """
local head, log, now = KEYS[1], KEYS[2], time()
local given_clock, given_place, given_most, given_order, life = unpack(ARGV)
local m = found(head, log, clock(given_clock, now))
local state = table.concat({m.inc, text(m.rev), text(m.next), text(now)}, ' ')
if m.inc == '0' or (life ~= '' and life ~= m.inc) then return {state} end
local place, most, backwards = math.min(tonumber(given_place), LANE - 1), tonumber(given_most), given_order ~= ''
local lanes, places, answer = {}, {}, {state}
for lane = SPOKEN, SUMMARY do
  local part
  if backwards then
    part = newest(log, lane, place, 0, most)
  else
    local low, high = '(' .. score(lane, place), '(' .. score(lane + 1, 0)
    part = call('ZRANGE', log, low, high, 'BYSCORE', 'LIMIT', 0, most)
  end
  if #part > 0 then
    lanes[#lanes + 1] = part
    places[#places + 1] = 1
  end
end
local function sequence(lane)
  local row = lanes[lane][places[lane]]
  return row and tonumber(string.match(row, '^%d+'))
end
local heads = {}
for lane = 1, #lanes do heads[lane] = sequence(lane) end
while #answer <= most do
  local best
  for lane = 1, #lanes do
    local own, other = heads[lane], best and heads[best]
    if own and (not best or (backwards and own > other) or (not backwards and own < other)) then best = lane end
  end
  if not best then break end
  answer[#answer + 1] = lanes[best][places[best]]
  places[best] = places[best] + 1
  heads[best] = sequence(best)
end
return answer
""",
    reads=True,
)

# KEYS: head, log, turns, ids, ends, gone. ARGV: clock, id, call's own name, incarnation, expected, before: when it is given,
# only what ended, or was last written to before; `-`: only what ended. The name makes it harmless to ask twice.
DELETE: Final = Script(
    """
local k, gone = keys(1), KEYS[6]
local given_clock, id, name, life, expected, before = unpack(ARGV)
if call('GET', gone) == name then return 1 end
local m = found(k.head, k.log, clock(given_clock, time()))
if life ~= '' and life ~= m.inc then return {DELETED} end
if expected ~= '' and tonumber(expected) ~= m.rev then return {OTHER_REVISION, m.rev} end
local was_there = m.inc ~= '0'
if before ~= '' then
  if was_there and (before == '-' or tonumber(m.updated) >= tonumber(before)) then return 0 end
  was_there = was_there or call('ZSCORE', k.ids, id)
end
forget(k, id)
if not was_there then return 0 end
call('SET', gone, name, 'PX', 60000)
return 1
""",
    frees=True,
)

# KEYS: one of the slot. Gives the server's time in microseconds.
TIME: Final = Script("return text(time())", reads=True)

# KEYS: lease, tokens. ARGV: clock, owner, microseconds, milliseconds that the key stays.
ACQUIRE: Final = Script("""
local lease, tokens = unpack(KEYS)
local given_clock, owner, length, stays = unpack(ARGV)
local at = clock(given_clock, time())
local holder, token, ends = unpack(call('HMGET', lease, 'owner', 'token', 'ends'))
if holder and tonumber(ends) > at then
  if holder ~= owner then return 0 end
else
  token = call('INCR', tokens)
end
call('HSET', lease, 'owner', owner, 'token', token, 'ends', text(at + length))
call('PEXPIRE', lease, stays)
return tonumber(token)
""")

# KEYS: lease. ARGV: token.
RELEASE: Final = Script(
    """
local lease, token = KEYS[1], ARGV[1]
if call('HGET', lease, 'token') == token then call('DEL', lease) end
return 1
""",
    frees=True,
)
