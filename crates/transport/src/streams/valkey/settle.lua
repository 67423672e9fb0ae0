-- Carries out settlements, each of them wholly or not at all, under one fence.
--
-- KEYS: the members' hash; each stream with bare acknowledgements; then for each full settlement
--       its source, the key to consume if any, the streams to append to, the keys to put.
-- ARGV: the member's field and value; the group and the consumer; how many streams with bare
--       acknowledgements; how many full settlements; for each of the former: how many ids, the ids;
--       for each of the latter: the id, how many keys to consume, appends and puts; for each
--       append: how many words, the words; for each put: milliseconds and value.
--
-- The answer holds only what isn't simply done, as three elements each: the number of the
-- settlement (bare ones come first), the kind (see settle.rs), the store's words.
local KEYS, ARGV = KEYS, ARGV
local pcall, unpack, tonumber = redis.pcall, unpack, tonumber

local NOT_PENDING, UNMET, FAILED = 1, 2, 3

local holder = pcall('HGET', KEYS[1], ARGV[1])
if type(holder) == 'table' and holder.err then
  return holder
end
if holder ~= ARGV[2] then
  return redis.error_reply('FENCED the membership has another holder')
end

local group, consumer = ARGV[3], ARGV[4]
local bare, full = tonumber(ARGV[5]), tonumber(ARGV[6])
local k, a, number = 2, 7, 0
local exceptions, length = {}, 0
-- The ids that the settlement at hand has added; one table serves all of them.
local added = {}

local function except(kind, words)
  exceptions[length + 1], exceptions[length + 2], exceptions[length + 3] = number, kind, words
  length = length + 3
end

-- Takes the entry off the pending list; whether it was on it.
local function acknowledge(stream, id)
  local taken = pcall('XACK', stream, group, id)
  if taken == 1 then
    return true
  end
  if taken == 0 then
    except(NOT_PENDING, '')
  else
    except(FAILED, taken.err)
  end
  return false
end

for _ = 1, bare do
  local stream, ids = KEYS[k], tonumber(ARGV[a])
  for i = a + 1, a + ids do
    acknowledge(stream, ARGV[i])
    number = number + 1
  end
  k, a = k + 1, a + 1 + ids
end

for _ = 1, full do
  local source, id = KEYS[k], ARGV[a]
  local consumes, appends, puts = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3])
  local first_consume = k + 1
  local first_append = first_consume + consumes
  local first_put = first_append + appends
  k, a = first_put + puts, a + 4

  local go = true
  if consumes == 1 then
    local there = pcall('EXISTS', KEYS[first_consume])
    if there == 0 then
      except(UNMET, '')
      go = false
    elseif there ~= 1 then
      except(FAILED, there.err)
      go = false
    end
  end
  go = go and acknowledge(source, id)

  local last_added, failure = first_append - 1, nil
  for i = first_append, first_put - 1 do
    local words = tonumber(ARGV[a])
    if go and not failure then
      local given = pcall('XADD', KEYS[i], '*', unpack(ARGV, a + 1, a + words))
      if type(given) == 'table' and given.err then
        failure = given.err
      else
        added[i], last_added = given, i
      end
    end
    a = a + 1 + words
  end
  local last_put = first_put - 1
  for i = first_put, first_put + puts - 1 do
    if go and not failure then
      local given = pcall('SET', KEYS[i], ARGV[a + 1], 'PX', ARGV[a])
      if given.err then
        failure = given.err
      else
        last_put = i
      end
    end
    a = a + 2
  end
  if go and consumes == 1 and not failure then
    local given = pcall('DEL', KEYS[first_consume])
    if type(given) == 'table' and given.err then
      failure = given.err
    end
  end

  if failure then
    for i = first_put, last_put do
      pcall('DEL', KEYS[i])
    end
    for i = first_append, last_added do
      pcall('XDEL', KEYS[i], added[i])
    end
    pcall('XCLAIM', source, group, consumer, 0, id, 'FORCE', 'JUSTID')
    except(FAILED, failure)
  end
  number = number + 1
end

return exceptions
