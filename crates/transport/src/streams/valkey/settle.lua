-- Carries out settlements, each of them wholly or not at all.
--
-- What a script is given costs more than what it does, so nothing is given twice: entries of one
-- stream with the same field names share a shape, which holds the names and those values that
-- are the same in all of them; an append is the number of its shape and the values that differ.
--
-- KEYS: the members' hash, then every other key once; they are known by their number.
-- ARGV: the member's field and value; the group and the consumer; how many streams with bare
--       acknowledgements, shapes, full settlements; the least number of full settlements from
--       which own entries are passed over (see below).
--       For each stream with bare acknowledgements: its key's number, how many ids, the ids.
--       For each shape: its key's number, how many words, the words with nothing where values
--       differ, and the places of those as two bytes each.
--       For each full settlement: a head of bytes (key of the source, key to consume or 0, how many
--       appends, the shape of each, how many puts, the key of each; all numbers of two bytes), the
--       entry's id, the values of the appends that differ, and for each put its value and milliseconds.
--
-- The answer holds only what isn't simply done, as three elements each: the number of the
-- settlement (bare ones come first), the kind (see settle.rs), the store's words.
local KEYS, ARGV = KEYS, ARGV
local pcall, unpack, tonumber, byte, type = redis.pcall, unpack, tonumber, string.byte, type

local NOT_PENDING, UNMET, FAILED = 1, 2, 3

local group, consumer = ARGV[3], ARGV[4]
local bare, shaped, full, many = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local a, number = 9, 0
local exceptions, length = {}, 0

local function except(kind, words)
  exceptions[length + 1], exceptions[length + 2], exceptions[length + 3] = number, kind, words
  length = length + 3
end

for _ = 1, bare do
  local stream, ids = KEYS[tonumber(ARGV[a])], tonumber(ARGV[a + 1])
  local taken = pcall('XACK', stream, group, unpack(ARGV, a + 2, a + 1 + ids))
  if taken ~= ids then
    -- Of several it isn't known which were pending, and it makes no difference.
    for _ = 1, ids do
      if type(taken) == 'table' then
        except(FAILED, taken.err)
      elseif taken == 0 then
        except(NOT_PENDING, '')
      end
      number = number + 1
    end
  else
    number = number + ids
  end
  a = a + 2 + ids
end

-- The stream, the words, and the places of what differs, for each shape.
local streams, words, places = {}, {}, {}
for shape = 1, shaped do
  local count = tonumber(ARGV[a + 1])
  streams[shape] = KEYS[tonumber(ARGV[a])]
  words[shape] = { unpack(ARGV, a + 2, a + 1 + count) }
  local holes, differing = ARGV[a + 2 + count], {}
  for i = 1, #holes, 2 do
    local high, low = byte(holes, i, i + 1)
    differing[#differing + 1] = high * 256 + low
  end
  places[shape] = differing
  a = a + 3 + count
end

-- What the group had read of a stream before anything was added to it: where that was all, the
-- entries added here needn't be read back by the one who wrote them.
local read_before, added_to = {}, {}
local function look(stream)
  local groups = pcall('XINFO', 'GROUPS', stream)
  read_before[stream], added_to[stream] = false, 0
  for i = 1, groups.err and 0 or #groups do
    local about = {}
    for j = 1, #groups[i], 2 do
      about[groups[i][j]] = groups[i][j + 1]
    end
    if about.name == group and about.lag == 0 and about['entries-read'] then
      read_before[stream] = about['entries-read']
    end
  end
end
if full >= many then
  for shape = 1, shaped do
    if read_before[streams[shape]] == nil then
      look(streams[shape])
    end
  end
end

-- The entry added last to each stream, and those that the settlement at hand has added.
local last_ids, added = {}, {}

for _ = 1, full do
  local head, id = ARGV[a], ARGV[a + 1]
  local h1, l1, h2, l2, h3, l3 = byte(head, 1, 6)
  local source, consume, appends = KEYS[h1 * 256 + l1], h2 * 256 + l2, h3 * 256 + l3
  a = a + 2

  local go = true
  if consume > 0 then
    local there = pcall('EXISTS', KEYS[consume])
    if there ~= 1 then
      if there == 0 then except(UNMET, '') else except(FAILED, there.err) end
      go = false
    end
  end
  if go then
    local taken = pcall('XACK', source, group, id)
    if taken ~= 1 then
      if taken == 0 then except(NOT_PENDING, '') else except(FAILED, taken.err) end
      go = false
    end
  end

  local done, failure = 0, nil
  local at = 7
  for i = 1, appends do
    local high, low = byte(head, at, at + 1)
    local shape = high * 256 + low
    local entry, differing = words[shape], places[shape]
    for j = 1, #differing do
      entry[differing[j]] = ARGV[a]
      a = a + 1
    end
    if go and not failure then
      local given = pcall('XADD', streams[shape], '*', unpack(entry))
      if type(given) == 'table' then
        failure = given.err
      else
        done = i
        added[i], added[-i] = given, streams[shape]
      end
    end
    at = at + 2
  end
  local high, low = byte(head, at, at + 1)
  local puts, put = high * 256 + low, 0
  at = at + 2
  for i = 1, puts do
    if go and not failure then
      high, low = byte(head, at, at + 1)
      local given = pcall('SET', KEYS[high * 256 + low], ARGV[a], 'PX', ARGV[a + 1])
      if given.err then failure = given.err else put = i end
    end
    at, a = at + 2, a + 2
  end
  if go and consume > 0 and not failure then
    local given = pcall('DEL', KEYS[consume])
    if type(given) == 'table' then
      failure = given.err
    end
  end

  if failure then
    local first_put = at - 2 * puts
    for i = 0, put - 1 do
      high, low = byte(head, first_put + 2 * i, first_put + 2 * i + 1)
      pcall('DEL', KEYS[high * 256 + low])
    end
    for i = 1, done do
      pcall('XDEL', added[-i], added[i])
    end
    pcall('XCLAIM', source, group, consumer, 0, id, 'FORCE', 'JUSTID')
    except(FAILED, failure)
  elseif go then
    for i = 1, done do
      local stream = added[-i]
      last_ids[stream] = added[i]
      added_to[stream] = (added_to[stream] or 0) + 1
    end
  end
  number = number + 1
end

for stream, read in pairs(read_before) do
  if read and last_ids[stream] then
    pcall('XGROUP', 'SETID', stream, group, last_ids[stream], 'ENTRIESREAD', read + added_to[stream])
  end
end

return exceptions
