"""What the methods do inside Redis, one atomic script a call. Refusals come back as a list that begins below zero."""

from __future__ import annotations

from typing import Final

from advisorchain.memory.repositories._redis.lua import Script

__all__ = [
    "ACQUIRE", "APPEND", "CHANGED", "DELETE", "DELETED", "LEASE_LOST", "LOST", "OCCUPIED", "OTHER_REVISION", "PAGE",
    "RECALL", "RELEASE", "TIME",
]  # fmt: skip

DELETED: Final = -1  # another life is there
LEASE_LOST: Final = -2
OTHER_REVISION: Final = -3  # and the one that is there
CHANGED: Final = -4  # since it was read: read again
LOST: Final = -5  # what was staged is not there
OCCUPIED: Final = -6  # the new id is taken

# KEYS: head, log, turns, ids, ends[, lease]. ARGV: clock, turn id, incarnation, expected, token, ttl, max_messages,
# new incarnation, id, and the rows without what only the server knows: sequence, question, time.
APPEND: Final = Script("""
local k, now = keys(1), time()
local at = clock(ARGV[1], now)
local m = found(k.head, k.log, at)
local begun = ARGV[3]
if begun ~= '' and begun ~= m.inc and begun ~= m.ended then
  if begun == m.before and call('ZSCORE', k.turns, ARGV[2]) then return m.rev end
  return {-1}
end
if m.inc ~= '0' and call('ZSCORE', k.turns, ARGV[2]) then return m.rev end
if ARGV[5] ~= '' and call('HGET', KEYS[6], 'token') ~= ARGV[5] then return {-2} end
if ARGV[4] ~= '' and tonumber(ARGV[4]) ~= m.rev then return {-3, m.rev} end
if m.inc == '0' then
  m.before = begun == '' and '0' or begun
  begin(k, m, ARGV[9], ARGV[8], now)
end
local known, own, fresh = {}, {}, false
for digest in string.gmatch(m.systems, ':(%x+)') do known[digest] = true end
for place = 10, #ARGV do
  if string.sub(ARGV[place], 1, 1) == 's' then
    local digest = string.sub(ARGV[place], 2, 33)
    own[digest] = true
    fresh = fresh or not known[digest]
  end
end
if fresh then m.systems = '' end
local first = m.next
for place = 10, #ARGV do
  local kind, lane = string.sub(ARGV[place], 1, 1), 0
  if kind == 'u' then m.question = m.next end
  if kind == 's' then
    local digest = string.sub(ARGV[place], 2, 33)
    lane = 2
    if fresh and own[digest] then
      lane, own[digest] = 1, nil
      m.systems = m.systems .. text(m.next) .. ':' .. digest .. ' '
    end
  else
    m.spoken = m.spoken + 1
  end
  local row = text(m.next) .. ' ' .. text(m.question) .. ' ' .. text(now) .. ' ' .. ARGV[place]
  call('ZADD', k.log, score(lane, m.next), row)
  m.next = m.next + 1
end
call('ZADD', k.turns, text(first), ARGV[2])
m.size = m.size + m.next - first
m.rev = m.rev + 1
trim(k, m, ARGV[7])
store(k, m, ARGV[9], ARGV[6], at, now)
return m.rev
""")

# KEYS: head, log. ARGV: clock, last, before. Gives counts, then the rows of tail (newest first), systems, question, summary.
RECALL: Final = Script(
    """
local m = found(KEYS[1], KEYS[2], clock(ARGV[1], ARGV[1] == '' and time() or 0))
if m.inc == '0' then return {} end
local log, before, last = KEYS[2], tonumber(ARGV[3]), ARGV[2] == '' and -1 or ARGV[2]
local tail = newest(log, 0, before or LANE - 1, 0, last)
local answer = {''}
for _, row in ipairs(tail) do answer[#answer + 1] = row end
local function add(part)
  for _, row in ipairs(part) do answer[#answer + 1] = row end
  return #part
end
local systems, cut = {}, 0
if m.systems ~= '' then
  if not before or tonumber(string.match(m.systems, '(%d+):%x+ $')) < before then
    systems = rows(log, 1, string.match(m.systems, '^%d+'), LANE - 1)
  else
    local offset, turns, last_turn = 0, 0, nil
    cut = 1
    while turns < 3 do
      local part = newest(log, 1, before, offset, 16)
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
  if question ~= '0' and question ~= sequence then questions = add(rows(log, 0, question, question + 1)) end
end
if m.summary > 0 then summaries = add(newest(log, 3, before or LANE - 1, 0, 1)) end
local counts = {text(m.rev), m.inc, text(m.size), #tail, many_systems, questions, summaries, cut, text(m.edit)}
answer[1] = table.concat(counts, ' ')
return answer
""",
    reads=True,
)

# KEYS: head, log. ARGV: clock, place, most, newest first, incarnation or ''. Gives the head, then rows.
PAGE: Final = Script(
    """
local now = time()
local m = found(KEYS[1], KEYS[2], clock(ARGV[1], now))
local head = table.concat({m.inc, text(m.rev), text(m.next), text(now)}, ' ')
if m.inc == '0' or (ARGV[5] ~= '' and ARGV[5] ~= m.inc) then return {head} end
local log, most, backwards = KEYS[2], tonumber(ARGV[3]), ARGV[4] ~= ''
local lanes, places, answer = {}, {}, {head}
for lane = 0, 3 do
  local part
  if backwards then
    part = newest(log, lane, math.min(tonumber(ARGV[2]), LANE - 1), 0, most)
  else
    local low, high = '(' .. score(lane, math.min(tonumber(ARGV[2]), LANE - 1)), '(' .. score(lane + 1, 0)
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
# only what ended, or was last written to before. The name makes it harmless to ask twice.
DELETE: Final = Script(
    """
local k, now = keys(1), time()
if call('GET', KEYS[6]) == ARGV[3] then return 1 end
local m = found(k.head, k.log, clock(ARGV[1], now))
if ARGV[4] ~= '' and ARGV[4] ~= m.inc then return {-1} end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= m.rev then return {-3, m.rev} end
local was_there = m.inc ~= '0'
if ARGV[6] ~= '' then
  if was_there and (ARGV[6] == '-' or tonumber(m.updated) >= tonumber(ARGV[6])) then return 0 end
  was_there = was_there or call('ZSCORE', k.ids, ARGV[2])
end
forget(k, ARGV[2])
if not was_there then return 0 end
call('SET', KEYS[6], ARGV[3], 'PX', 60000)
return 1
""",
    frees=True,
)

# KEYS: one of the slot. Gives the server's time in microseconds.
TIME: Final = Script("return text(time())", reads=True)

# KEYS: lease, tokens. ARGV: clock, owner, microseconds, milliseconds that the key stays.
ACQUIRE: Final = Script("""
local at = clock(ARGV[1], time())
local owner, token, ends = unpack(call('HMGET', KEYS[1], 'owner', 'token', 'ends'))
if owner and tonumber(ends) > at then
  if owner ~= ARGV[2] then return 0 end
else
  token = call('INCR', KEYS[2])
end
call('HSET', KEYS[1], 'owner', ARGV[2], 'token', token, 'ends', text(at + ARGV[3]))
call('PEXPIRE', KEYS[1], ARGV[4])
return tonumber(token)
""")

# KEYS: lease. ARGV: token.
RELEASE: Final = Script(
    """
if call('HGET', KEYS[1], 'token') == ARGV[1] then call('DEL', KEYS[1]) end
return 1
""",
    frees=True,
)
