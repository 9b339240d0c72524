#!lua name=whimbrel_gnrs_1
-- The records of a name server: see docs/protocols/gnrs.md, "On a cluster".
-- A binding is a string: version (20 digits), kept until (20 digits), record.
-- The providers of a content are the fields of a hash: version, kept until, removed (1), network (32), record.

local function milliseconds(digits, more)
  return string.format('%.0f', tonumber(digits) + more)
end

-- The field of the provider that gives way to one of this network.
local function victim(key, now, network)
  local all = redis.call('HGETALL', key)
  local gone, gone_until = nil, nil
  local living = {}
  for i = 1, #all, 2 do
    local value = all[i + 1]
    local keep = string.sub(value, 21, 40)
    if string.sub(value, 41, 41) == '1' or keep <= now then
      if not gone or keep < gone_until or (keep == gone_until and all[i] < gone) then
        gone, gone_until = all[i], keep
      end
    else
      local of = string.sub(value, 42, 73)
      living[of] = (living[of] or 0) + 1
    end
  end
  if gone then return gone end
  local most, count = nil, 0
  for of, number in pairs(living) do
    if number > count or (number == count and of > most) then most, count = of, number end
  end
  if count <= (living[network] or 0) + 1 then return nil end
  local first, first_until = nil, nil
  for i = 1, #all, 2 do
    local value = all[i + 1]
    if string.sub(value, 42, 73) == most then
      local keep = string.sub(value, 21, 40)
      if not first or keep < first_until or (keep == first_until and all[i] < first) then
        first, first_until = all[i], keep
      end
    end
  end
  return first
end

-- Compares, sets, expires and publishes. The channel is derived from the key, so that it is of the same slot.
local function put(keys, args)
  local key = keys[1]
  local now, version, expires, record, create = args[1], args[2], args[3], args[4], args[5]
  local provider, removed, network, most = args[6], args[7], args[8], tonumber(args[9])
  local tag = string.match(key, '^{%d+}')
  local channel = tag .. 'w' .. string.sub(key, #tag + 2)
  local is_binding = provider == ''
  local head = is_binding and 40 or 73
  local old
  if is_binding then old = redis.call('GET', key) else old = redis.call('HGET', key, provider) end
  local known = old and string.sub(old, 21, 40) > now
  local keep, gone = expires, ''
  if known then
    local stored = string.sub(old, 1, 20)
    local before = string.sub(old, head + 1)
    if version < stored then return {'stale', stored, before} end
    if version == stored then
      if before == record then return {'same', stored, before} end
      return {'conflict', stored, before}
    end
    if string.sub(old, 21, 40) > keep then keep = string.sub(old, 21, 40) end
  elseif create ~= '1' then
    return {'full', '', ''}
  elseif not is_binding and not old and redis.call('HLEN', key) >= most then
    gone = victim(key, now, network)
    if not gone then return {'full', '', ''} end
    redis.call('HDEL', key, gone)
  end
  -- A minute more than its time: the engine's clock is not the name server's.
  local at = milliseconds(keep, 60000)
  if is_binding then
    redis.call('SET', key, version .. keep .. record, 'PXAT', at)
  else
    redis.call('HSET', key, provider, version .. keep .. removed .. network .. record)
    if redis.call('PEXPIRETIME', key) < tonumber(at) then redis.call('PEXPIREAT', key, at) end
  end
  -- What is published: the provider that has given way (64 digits or blanks), and the record.
  redis.call('SPUBLISH', channel, string.format('%-64s', gone) .. record)
  return {known and 'stored' or 'created', version, gone}
end

-- The records of a name: keys are those of its binding and of its providers.
local function read(keys)
  return {redis.call('GET', keys[1]), redis.call('HVALS', keys[2])}
end

-- Removes a value that is not what it says, unless it has changed since.
local function discard(keys, args)
  local record, provider = args[1], args[2]
  if provider == '' then
    local old = redis.call('GET', keys[1])
    if old and string.sub(old, 41) == record then return redis.call('DEL', keys[1]) end
  else
    local old = redis.call('HGET', keys[1], provider)
    if old and string.sub(old, 74) == record then return redis.call('HDEL', keys[1], provider) end
  end
  return 0
end

redis.register_function('whimbrel_gnrs_1_put', put)
redis.register_function{function_name='whimbrel_gnrs_1_read', callback=read, flags={'no-writes'}}
redis.register_function('whimbrel_gnrs_1_discard', discard)
