"""What replace, fork and rename do inside Redis; refusals as in `scripts`."""

from __future__ import annotations

from typing import Final

from advisorchain.memory.repositories._redis.lua import Script

__all__ = ["DUMP", "FORK", "PLANT", "RENAME", "REPLACE", "STAGE"]

# KEYS: staged log, staged turns. ARGV: how many rows, (score, row)…, (score, turn id)…. Puts aside what REPLACE and PLANT
# take.
STAGE: Final = Script("""
local rows = tonumber(ARGV[1])
for place = 2, #ARGV, 2 do
  call('ZADD', KEYS[place <= 2 * rows and 1 or 2], ARGV[place], ARGV[place + 1])
end
for place = 1, 2 do call('PEXPIRE', KEYS[place], 600000) end
return 1
""")

# KEYS: head, log, turns, ids, ends, staged log, staged turns. ARGV: clock, id, call's own name, incarnation and revision
# that were read, ttl, max_messages, new incarnation, and of the head size, spoken, next, systems, question, summary.
REPLACE: Final = Script("""
local k, now = keys(1), time()
local at = clock(ARGV[1], now)
local m = found(k.head, k.log, at)
if m.inc ~= '0' and m.op == ARGV[3] then return m.rev end
if m.inc ~= ARGV[4] or m.rev ~= tonumber(ARGV[5]) then
  call('UNLINK', KEYS[6], KEYS[7])
  return {-4}
end
if call('ZCARD', KEYS[6]) ~= tonumber(ARGV[9]) then return {-5} end
if m.inc == '0' then begin(k, m, ARGV[2], ARGV[8], now) end
local gone = call('ZRANGE', k.turns, 0, '+inf', 'BYSCORE', 'WITHSCORES')
for place = 1, #gone, 2 do call('ZADD', k.turns, text(gone[place + 1] + GONE), gone[place]) end
call('ZUNIONSTORE', k.turns, 2, k.turns, KEYS[7], 'AGGREGATE', 'MAX')
forget_turns(k)
call('RENAME', KEYS[6], k.log)
call('UNLINK', KEYS[7])
call('PERSIST', k.log)
m.rev = m.rev + 1
m.edit, m.op, m.size, m.spoken, m.next = m.rev, ARGV[3], tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
m.systems, m.question, m.summary = ARGV[12], tonumber(ARGV[13]), tonumber(ARGV[14])
trim(k, m, ARGV[7])
store(k, m, ARGV[2], ARGV[6], at, now)
return m.rev
""")

# KEYS: both conversations'. ARGV: clock, id, new id, call's own name.
RENAME: Final = Script("""
local k, to, now = keys(1), keys(6), time()
local at = clock(ARGV[1], now)
local m, target = found(k.head, k.log, at), found(to.head, to.log, at)
if target.inc ~= '0' and target.op == ARGV[4] then return 1 end
if m.inc == '0' then return 0 end
if target.inc ~= '0' then return {-6} end
local left = call('ZSCORE', k.ends, ARGV[2])
forget(to, ARGV[3])
call('RENAME', k.log, to.log)
if call('EXISTS', k.turns) == 1 then call('RENAME', k.turns, to.turns) end
call('RENAME', k.head, to.head)
call('HSET', to.head, 'op', ARGV[4])
forget(k, ARGV[2])
call('ZADD', to.ids, 0, ARGV[3])
if left then call('ZADD', to.ends, left, ARGV[3]) end
return 1
""")

# KEYS: both conversations'. ARGV: clock, new id, call's own name, at, new incarnation; with `at` also incarnation and edit
# that were read, the systems in force there, and the sequences that change to lane 2.
FORK: Final = Script("""
local k, to, now = keys(1), keys(6), time()
local at, last = clock(ARGV[1], now), tonumber(ARGV[4]) or LANE - 1
local m, target = found(k.head, k.log, at), found(to.head, to.log, at)
if target.inc ~= '0' and target.op == ARGV[3] then return 1 end
if ARGV[6] ~= '' and (m.inc ~= ARGV[6] or m.edit ~= tonumber(ARGV[7])) then return {-4} end
local some = false
for lane = 0, 3 do some = some or call('ZCOUNT', k.log, '(' .. score(lane, 0), score(lane, last)) > 0 end
if m.inc == '0' or not some then return 0 end
if target.inc ~= '0' then return {-6} end
begin(to, target, ARGV[2], ARGV[5], now)
call('COPY', k.log, to.log)
call('COPY', k.turns, to.turns)
call('PERSIST', to.log)
call('PERSIST', to.turns)
for lane = 0, 3 do call('ZREMRANGEBYSCORE', to.log, '(' .. score(lane, last), '(' .. score(lane + 1, 0)) end
call('ZREMRANGEBYSCORE', to.turns, '-inf', 0)
call('ZREMRANGEBYSCORE', to.turns, '(' .. text(last), '+inf')
for sequence in string.gmatch(ARGV[9], '%d+') do
  call('ZADD', to.log, score(2, sequence), rows(to.log, 1, sequence, sequence + 1)[1])
end
local function top(lane)
  local row = newest(to.log, lane, LANE - 1, 0, 1)[1]
  local sequence, question = string.match(row or '0 0', '^(%d+) (%d+)')
  return tonumber(sequence), tonumber(question)
end
local spoken, question = top(0)
target.summary = top(3)
target.next = math.max(spoken, top(1), top(2), target.summary) + 1
target.question, target.op, target.rev = question, ARGV[3], 1
target.systems = ARGV[6] == '' and m.systems or ARGV[8]
target.size = call('ZCARD', to.log)
target.spoken = call('ZCOUNT', to.log, '(' .. score(0, 0), '(' .. score(1, 0))
store(to, target, ARGV[2], m.ttl, at, now)
return 1
""")

# KEYS: head, log, turns. ARGV: clock, how many rows and turns to pass by, how many to give. Gives how many of each, and the
# head; the rows or, when there are no more, the turns, each with its score.
DUMP: Final = Script(
    """
local m = found(KEYS[1], KEYS[2], clock(ARGV[1], ARGV[1] == '' and time() or 0))
if m.inc == '0' then return {} end
local many, first, most = call('ZCARD', KEYS[2]), tonumber(ARGV[2]), tonumber(ARGV[3])
local key = KEYS[first < many and 2 or 3]
first = first < many and first or first - many
local part = call('ZRANGE', key, first, first + most - 1, 'WITHSCORES')
local answer = {many, call('ZCARD', KEYS[3])}
for _, name in ipairs(NAMES) do answer[#answer + 1] = type(m[name]) == 'number' and text(m[name]) or m[name] end
for _, value in ipairs(part) do answer[#answer + 1] = value end
return answer
""",
    reads=True,
)

# KEYS: head, log, turns, ids, ends, staged log, staged turns. ARGV: clock, id, call's own name, how many rows, whether the
# times begin anew, and the values of the head. Puts what was staged at an id that is free.
PLANT: Final = Script("""
local k, now = keys(1), time()
local at = clock(ARGV[1], now)
local target = found(k.head, k.log, at)
if target.inc ~= '0' then
  call('UNLINK', KEYS[6], KEYS[7])
  return target.op == ARGV[3] and 1 or {-6}
end
if call('ZCARD', KEYS[6]) ~= tonumber(ARGV[4]) then return {-5} end
local m = {}
for place, name in ipairs(NAMES) do m[name] = ARGV[place + 5] end
begin(k, target, ARGV[2], m.inc, now)
call('RENAME', KEYS[6], k.log)
if call('EXISTS', KEYS[7]) == 1 then call('RENAME', KEYS[7], k.turns) end
call('PERSIST', k.log)
call('PERSIST', k.turns)
m.op = ARGV[3]
if ARGV[5] ~= '' then
  m.created = text(now)
  store(k, m, ARGV[2], '', at, now)
else
  save(k, m)
  if m.ttl ~= '' then expire(k, ARGV[2], math.ceil(math.max(0, m.ends - at) / 1000) + GRACE, now) end
end
return 1
""")
