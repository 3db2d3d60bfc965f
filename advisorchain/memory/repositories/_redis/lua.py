"""Lua that Redis runs: what a script is, and what all of ours have in common."""

from __future__ import annotations

from hashlib import sha1
from typing import Final

from advisorchain.memory.repositories._log_rules import DECIDING, REPEATED, SPOKEN, SUMMARY

__all__ = [
    "CHANGED", "DELETED", "FORGOTTEN", "GRACE", "LANE", "LEASE_LOST", "LOST", "NAMES", "OCCUPIED", "OTHER_REVISION",
    "Script",
]  # fmt: skip

LANE: Final = 2**51  # an entry's score is its lane times this, plus its sequence: exact in a double
GRACE: Final = 3_600_000  # milliseconds that the keys outlive the conversation: a turn begun before still finds it
FORGOTTEN: Final = 1000  # turn ids that stay known without entries; older ones go, or a trimmed log would grow for ever

# A script that refuses answers with a list of one of these, by the same names in Lua:
DELETED: Final = -1  # another life is there
LEASE_LOST: Final = -2
OTHER_REVISION: Final = -3  # and the one that is there
CHANGED: Final = -4  # since it was read: read again
LOST: Final = -5  # what was staged is not there
OCCUPIED: Final = -6  # the new id is taken

NAMES: Final = (  # the values of a head, in the order in which scripts give and take them
    "inc", "rev", "size", "next", "spoken", "systems", "question", "summary", "ttl", "ends", "before", "edit", "op",
    "created", "updated",
)  # fmt: skip

# Keys of a conversation: a hash (head), a sorted set of rows (log), one of turn ids by the sequence of their first entry
# (turns); a turn that has no entries any more is below zero. Keys of the slot: ids in code point order, and those that have
# a time to live by the millisecond in which their keys are gone (ends).
_COMMON: Final = f"""
local LANE, GRACE, FORGOTTEN, GONE = {LANE}, {GRACE}, {FORGOTTEN}, -4503599627370496
local SPOKEN, DECIDING, REPEATED, SUMMARY = {SPOKEN}, {DECIDING}, {REPEATED}, {SUMMARY}
local call = redis.call
local function text(number) return string.format('%.0f', number) end
local function score(lane, sequence) return text(lane * LANE + sequence) end
local function time() local t = call('TIME'); return t[1] * 1000000 + t[2] end
local function clock(given, now) if given == '' then return now end; return tonumber(given) end
local function turn_of(row)
  local size, start = string.match(row, '^%d+ %d+ %d+ %w+ %S+ (%d+) ()')
  return string.sub(row, start, start + size - 1)
end
local function rows(log, lane, low, high)
  return call('ZRANGE', log, score(lane, low), '(' .. score(lane, high), 'BYSCORE')
end
local function newest(log, lane, before, offset, count)
  local low, high = '(' .. score(lane, 0), '(' .. score(lane, before)
  return call('ZRANGE', log, high, low, 'BYSCORE', 'REV', 'LIMIT', offset, count)
end
local NAMES = {{{", ".join(map(repr, NAMES))}}}
local COUNTS = {{'rev', 'size', 'next', 'spoken', 'question', 'summary', 'edit'}}
local function absent(ended)
  return {{inc = '0', ended = ended, rev = 0, size = 0, next = 1, spoken = 0, systems = '', question = 0, summary = 0,
    ttl = '', ends = '', before = '0', edit = 0, op = ''}}
end
-- A head without its log is what an eviction left; it is not there.
local function found(head, log, at)
  local values = call('HMGET', head, unpack(NAMES))
  if not values[1] or call('EXISTS', log) == 0 then return absent('0') end
  local m = {{ended = '0'}}
  for place, name in ipairs(NAMES) do m[name] = values[place] end
  if m.ends ~= '' and tonumber(m.ends) <= at then return absent(m.inc) end
  for _, name in ipairs(COUNTS) do m[name] = tonumber(m[name]) end
  return m
end
"""

_REFUSALS: Final = f"""
local DELETED, LEASE_LOST, OTHER_REVISION = {DELETED}, {LEASE_LOST}, {OTHER_REVISION}
local CHANGED, LOST, OCCUPIED = {CHANGED}, {LOST}, {OCCUPIED}
"""

# What the scripts that write need besides. `k` are the keys of one conversation: head, log, turns, ids, ends.
_WRITING: Final = """
local function keys(first)
  return {head = KEYS[first], log = KEYS[first + 1], turns = KEYS[first + 2], ids = KEYS[first + 3], ends = KEYS[first + 4]}
end
local function forget(k, id)
  call('UNLINK', k.head, k.log, k.turns)
  call('ZREM', k.ids, id)
  call('ZREM', k.ends, id)
end
-- A conversation in the place of one that ended or was evicted; ids whose keys are gone go, more than come.
local function begin(k, m, id, life, now)
  call('UNLINK', k.head, k.log, k.turns)
  m.inc, m.created = life, text(now)
  call('ZADD', k.ids, 0, id)
  for _, old in ipairs(call('ZRANGE', k.ends, '-inf', text(now / 1000), 'BYSCORE', 'LIMIT', 0, 2)) do
    call('ZREM', k.ids, old)
    call('ZREM', k.ends, old)
  end
end
local function save(k, m)
  local values = {}
  for _, name in ipairs(NAMES) do
    values[#values + 1] = name
    values[#values + 1] = type(m[name]) == 'number' and text(m[name]) or m[name]
  end
  call('HSET', k.head, unpack(values))
end
local function expire(k, id, left, now)
  for _, key in ipairs({k.head, k.log, k.turns}) do call('PEXPIRE', key, text(left)) end
  call('ZADD', k.ends, text(math.ceil(now / 1000) + left), id)
end
-- The end of every write: `ttl` is '' to keep the one that is there, '0' for no end.
local function store(k, m, id, ttl, at, now)
  local had = m.ttl ~= ''
  if ttl ~= '' then m.ttl = ttl == '0' and '' or ttl end
  m.updated, m.ends = text(now), m.ttl == '' and '' or text(at + m.ttl)
  save(k, m)
  if m.ttl ~= '' then
    expire(k, id, math.ceil(m.ttl / 1000) + GRACE, now)
  elseif had then
    for _, key in ipairs({k.head, k.log, k.turns}) do call('PERSIST', key) end
    call('ZREM', k.ends, id)
  end
end
local function first_system(m) return tonumber(string.match(m.systems, '^(%d+)') or '0') end
-- The question that shall be the first of the log, when so many spoken entries are too many.
local function cut_of(k, m, excess)
  local first = string.match(call('ZRANGE', k.log, 0, 0)[1], '^%d+')
  if tonumber(first) == m.question then return m.question end
  local rank = excess
  while true do
    for _, row in ipairs(call('ZRANGE', k.log, rank, math.min(rank + 7, m.spoken - 1))) do
      local sequence, question = string.match(row, '^(%d+) (%d+)')
      if sequence == question or tonumber(sequence) >= m.question then return tonumber(question) end
    end
    rank = rank + 8
  end
end
-- Turns that have no entry any more stay known for a while.
local function forget_turns(k)
  local many = call('ZCOUNT', k.turns, '-inf', '(0') - FORGOTTEN
  if many > 0 then call('ZREMRANGEBYRANK', k.turns, 0, many - 1) end
end
local function retire(k, m, cut)
  local staying = {}
  for _, row in ipairs(rows(k.log, SPOKEN, cut, cut + 1)) do staying[turn_of(row)] = true end
  for _, row in ipairs(rows(k.log, DECIDING, first_system(m), cut)) do staying[turn_of(row)] = true end
  for _, row in ipairs(rows(k.log, SUMMARY, m.summary, cut)) do staying[turn_of(row)] = true end
  local gone = call('ZRANGE', k.turns, 1, '(' .. text(cut), 'BYSCORE', 'WITHSCORES')
  for place = 1, #gone, 2 do
    if not staying[gone[place]] then call('ZADD', k.turns, text(gone[place + 1] + GONE), gone[place]) end
  end
  forget_turns(k)
end
local function trim(k, m, most)
  if most == '' or m.spoken <= tonumber(most) or m.question == 0 then return end
  local cut, size = cut_of(k, m, m.spoken - most), m.size
  local systems, summary = first_system(m), m.summary
  local function up_to(place) return place > 0 and math.min(cut, place) or cut end
  local ends = {[SPOKEN] = cut, [DECIDING] = up_to(systems), [REPEATED] = cut, [SUMMARY] = up_to(summary)}
  for lane = SPOKEN, SUMMARY do
    local gone = call('ZREMRANGEBYSCORE', k.log, score(lane, 1), '(' .. score(lane, ends[lane]))
    m.size = m.size - gone
    if lane == SPOKEN then m.spoken = m.spoken - gone end
  end
  if m.size < size then
    retire(k, m, cut)
    m.edit = m.rev
  end
end
"""


class Script:
    """A script that is called by its digest, and sent whole to a server that does not know it.

    Args:
        body: what it does, after what all have in common.
        reads: it writes nothing; such a script also runs while the server refuses writes.
        frees: it only removes, so it runs while the server has no memory left.
    """

    __slots__ = ("reads", "sha", "text")

    def __init__(self, body: str, *, reads: bool = False, frees: bool = False) -> None:
        flags = " flags=no-writes" if reads else " flags=allow-oom" if frees else ""
        self.reads: Final = reads
        self.text: Final = f"#!lua{flags}\n{_COMMON}{'' if reads else _REFUSALS + _WRITING}{body}"
        self.sha: Final = sha1(self.text.encode(), usedforsecurity=False).hexdigest()
