"""What replace, fork and rename do inside Redis; refusals as in `lua`."""

from __future__ import annotations

from typing import Final

from advisorchain.memory.repositories._redis.lua import Script

__all__ = ["DUMP", "FORK", "PLANT", "RENAME", "REPLACE", "STAGE"]

# KEYS: staged log, staged turns. ARGV: how many rows, (score, row)…, (score, turn id)…. Puts aside what REPLACE and PLANT
# take.
STAGE: Final = Script("""
local log, turns = unpack(KEYS)
local many_rows = tonumber(ARGV[1])
for place = 2, #ARGV, 2 do
  call('ZADD', place <= 2 * many_rows and log or turns, ARGV[place], ARGV[place + 1])
end
for _, key in ipairs(KEYS) do call('PEXPIRE', key, 600000) end
return 1
""")

# KEYS: head, log, turns, ids, ends, staged log, staged turns. ARGV: clock, id, call's own name, incarnation and revision
# that were read, ttl, max_messages, new incarnation, and of the head size, spoken, next, systems, question, summary.
REPLACE: Final = Script("""
local k, new_log, new_turns, now = keys(1), KEYS[6], KEYS[7], time()
local given_clock, id, name, read_life, read_revision, ttl, most, life = unpack(ARGV, 1, 8)
local size, spoken, next_sequence, systems, question, summary = unpack(ARGV, 9)
local at = clock(given_clock, now)
local m = found(k.head, k.log, at)
if m.inc ~= '0' and m.op == name then return m.rev end
if m.inc ~= read_life or m.rev ~= tonumber(read_revision) then
  call('UNLINK', new_log, new_turns)
  return {CHANGED}
end
if call('ZCARD', new_log) ~= tonumber(size) then return {LOST} end
if m.inc == '0' then begin(k, m, id, life, now) end
local gone = call('ZRANGE', k.turns, 0, '+inf', 'BYSCORE', 'WITHSCORES')
for place = 1, #gone, 2 do call('ZADD', k.turns, text(gone[place + 1] + GONE), gone[place]) end
call('ZUNIONSTORE', k.turns, 2, k.turns, new_turns, 'AGGREGATE', 'MAX')
forget_turns(k)
call('RENAME', new_log, k.log)
call('UNLINK', new_turns)
call('PERSIST', k.log)
m.rev = m.rev + 1
m.edit, m.op, m.size, m.spoken, m.next = m.rev, name, tonumber(size), tonumber(spoken), tonumber(next_sequence)
m.systems, m.question, m.summary = systems, tonumber(question), tonumber(summary)
trim(k, m, most)
store(k, m, id, ttl, at, now)
return m.rev
""")

# KEYS: both conversations'. ARGV: clock, id, new id, call's own name.
RENAME: Final = Script("""
local k, to = keys(1), keys(6)
local given_clock, id, new_id, name = unpack(ARGV)
local at = clock(given_clock, time())
local m, target = found(k.head, k.log, at), found(to.head, to.log, at)
if target.inc ~= '0' and target.op == name then return 1 end
if m.inc == '0' then return 0 end
if target.inc ~= '0' then return {OCCUPIED} end
local left = call('ZSCORE', k.ends, id)
forget(to, new_id)
call('RENAME', k.log, to.log)
if call('EXISTS', k.turns) == 1 then call('RENAME', k.turns, to.turns) end
call('RENAME', k.head, to.head)
call('HSET', to.head, 'op', name)
forget(k, id)
call('ZADD', to.ids, 0, new_id)
if left then call('ZADD', to.ends, left, new_id) end
return 1
""")

# KEYS: both conversations'. ARGV: clock, new id, call's own name, at, new incarnation; with `at` also incarnation and edit
# that were read, the systems in force there, and the sequences that change to lane 2.
FORK: Final = Script("""
local k, to, now = keys(1), keys(6), time()
local given_clock, new_id, name, given_last, life, read_life, read_edit, systems, repeated = unpack(ARGV)
local at, last = clock(given_clock, now), tonumber(given_last) or LANE - 1
local m, target = found(k.head, k.log, at), found(to.head, to.log, at)
if target.inc ~= '0' and target.op == name then return 1 end
if read_life ~= '' and (m.inc ~= read_life or m.edit ~= tonumber(read_edit)) then return {CHANGED} end
local some = false
for lane = SPOKEN, SUMMARY do some = some or call('ZCOUNT', k.log, '(' .. score(lane, 0), score(lane, last)) > 0 end
if m.inc == '0' or not some then return 0 end
if target.inc ~= '0' then return {OCCUPIED} end
begin(to, target, new_id, life, now)
call('COPY', k.log, to.log)
call('COPY', k.turns, to.turns)
call('PERSIST', to.log)
call('PERSIST', to.turns)
for lane = SPOKEN, SUMMARY do call('ZREMRANGEBYSCORE', to.log, '(' .. score(lane, last), '(' .. score(lane + 1, 0)) end
call('ZREMRANGEBYSCORE', to.turns, '-inf', 0)
call('ZREMRANGEBYSCORE', to.turns, '(' .. text(last), '+inf')
for sequence in string.gmatch(repeated, '%d+') do
  call('ZADD', to.log, score(REPEATED, sequence), rows(to.log, DECIDING, sequence, sequence + 1)[1])
end
local function top(lane)
  local row = newest(to.log, lane, LANE - 1, 0, 1)[1]
  local sequence, question = string.match(row or '0 0', '^(%d+) (%d+)')
  return tonumber(sequence), tonumber(question)
end
local spoken, question = top(SPOKEN)
target.summary = top(SUMMARY)
target.next = math.max(spoken, top(DECIDING), top(REPEATED), target.summary) + 1
target.question, target.op, target.rev = question, name, 1
target.systems = read_life == '' and m.systems or systems
target.size = call('ZCARD', to.log)
target.spoken = call('ZCOUNT', to.log, '(' .. score(SPOKEN, 0), '(' .. score(SPOKEN + 1, 0))
store(to, target, new_id, m.ttl, at, now)
return 1
""")

# KEYS: head, log, turns. ARGV: clock, how many rows and turns to pass by, how many to give. Gives how many of each, and the
# head; the rows or, when there are no more, the turns, each with its score.
DUMP: Final = Script(
    """
local head, log, turns = unpack(KEYS)
local given_clock, passed, most = unpack(ARGV)
local m = found(head, log, clock(given_clock, given_clock == '' and time() or 0))
if m.inc == '0' then return {} end
local many_rows, key, first = call('ZCARD', log), log, tonumber(passed)
if first >= many_rows then key, first = turns, first - many_rows end
local part = call('ZRANGE', key, first, first + most - 1, 'WITHSCORES')
local answer = {many_rows, call('ZCARD', turns)}
for _, name in ipairs(NAMES) do answer[#answer + 1] = type(m[name]) == 'number' and text(m[name]) or m[name] end
for _, value in ipairs(part) do answer[#answer + 1] = value end
return answer
""",
    reads=True,
)

# KEYS: head, log, turns, ids, ends, staged log, staged turns. ARGV: clock, id, call's own name, how many rows, whether the
# times begin anew, and the values of the head. Puts what was staged at an id that is free.
PLANT: Final = Script("""
local k, new_log, new_turns, now = keys(1), KEYS[6], KEYS[7], time()
local given_clock, id, name, many_rows, anew = unpack(ARGV, 1, 5)
local at = clock(given_clock, now)
local target = found(k.head, k.log, at)
if target.inc ~= '0' then
  call('UNLINK', new_log, new_turns)
  return target.op == name and 1 or {OCCUPIED}
end
if call('ZCARD', new_log) ~= tonumber(many_rows) then return {LOST} end
local m = {}
for place, field in ipairs(NAMES) do m[field] = ARGV[place + 5] end
begin(k, target, id, m.inc, now)
call('RENAME', new_log, k.log)
if call('EXISTS', new_turns) == 1 then call('RENAME', new_turns, k.turns) end
call('PERSIST', k.log)
call('PERSIST', k.turns)
m.op = name
if anew ~= '' then
  m.created = text(now)
  store(k, m, id, '', at, now)
else
  save(k, m)
  if m.ttl ~= '' then expire(k, id, math.ceil(math.max(0, m.ends - at) / 1000) + GRACE, now) end
end
return 1
""")
