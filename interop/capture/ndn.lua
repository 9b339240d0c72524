-- Dissects NDN for tshark and Wireshark, which know nothing of it: UDP ports 6363 and 56363, TCP port 6363, EtherType 0x8624.
--   tshark -r FILE -X lua_script:interop/capture/ndn.lua -Y ndn -T json -e ndn.type -e ndn.name
-- Fields that occur more than once, as of several packets in one frame, are lists.
local ndn = Proto("ndn", "Named Data Networking")

local TYPES = {
  [0x05] = "Interest", [0x06] = "Data", [0x07] = "Name", [0x64] = "LpPacket",
  [0x01] = "ImplicitSha256Digest", [0x02] = "ParametersSha256Digest", [0x08] = "GenericNameComponent",
  [0x20] = "Keyword", [0x32] = "Segment", [0x34] = "ByteOffset", [0x36] = "Version", [0x38] = "Timestamp", [0x3a] = "SequenceNum",
  [0x21] = "CanBePrefix", [0x12] = "MustBeFresh", [0x1e] = "ForwardingHint", [0x0a] = "Nonce", [0x0c] = "InterestLifetime",
  [0x22] = "HopLimit", [0x24] = "ApplicationParameters", [0x2c] = "InterestSignatureInfo", [0x2e] = "InterestSignatureValue",
  [0x14] = "MetaInfo", [0x18] = "ContentType", [0x19] = "FreshnessPeriod", [0x1a] = "FinalBlockId", [0x15] = "Content",
  [0x16] = "SignatureInfo", [0x17] = "SignatureValue", [0x1b] = "SignatureType", [0x1c] = "KeyLocator", [0x1d] = "KeyDigest",
  [0x26] = "SignatureNonce", [0x28] = "SignatureTime", [0x2a] = "SignatureSeqNum",
  [0x50] = "Fragment",
}
local CONTAINERS = {
  [0x05] = true, [0x06] = true, [0x64] = true, [0x14] = true, [0x16] = true, [0x2c] = true, [0x1c] = true, [0x1e] = true,
  [0x1a] = true,
}
-- Written by: WHIMBREL_WRITE=1 cargo test -p whimbrel-ndn-packet --test all lp_table::
-- begin of the rows of crates/ndn-packet/src/lp/table.rs
local LINK_FIELDS = {
  { 0x0051, "Sequence", "ndn.lp.sequence", "number" },
  { 0x0052, "FragIndex", "ndn.lp.frag_index", "number" },
  { 0x0053, "FragCount", "ndn.lp.frag_count", "number" },
  { 0x0062, "PitToken", "ndn.lp.pit_token", "octets" },
  { 0x0320, "Nack", "ndn.lp.nack", "container" },
  { 0x0321, "NackReason", "ndn.lp.nack_reason", "number" },
  { 0x032c, "IncomingFaceId", "ndn.lp.incoming_face_id", "number" },
  { 0x0330, "NextHopFaceId", "ndn.lp.next_hop_face_id", "number" },
  { 0x0334, "CachePolicy", "ndn.lp.cache_policy", "container" },
  { 0x0335, "CachePolicyType", "ndn.lp.cache_policy_type", "number" },
  { 0x0340, "CongestionMark", "ndn.lp.congestion_mark", "number" },
  { 0x0344, "Ack", "ndn.lp.ack", "number" },
  { 0x0348, "TxSequence", "ndn.lp.tx_sequence", "number" },
  { 0x034c, "NonDiscovery", "ndn.lp.non_discovery", "flag" },
  { 0x0350, "PrefixAnnouncement", "ndn.lp.prefix_announcement", "container" },
  { 0x03a0, "RouteLabel", "ndn.lp.route_label", "number" },
  { 0x03a4, "PathTag", "ndn.lp.path_tag", "octets" },
  { 0x03a8, "PathDiscovery", "ndn.lp.path_discovery", "flag" },
  { 0x03ac, "Intermediate", "ndn.lp.intermediate", "flag" },
  { 0x03b0, "PathProbe", "ndn.lp.path_probe", "octets" },
  { 0x03b4, "PathAnswer", "ndn.lp.path_answer", "octets" },
  { 0x03bc, "AdaptiveHello", "ndn.lp.adaptive_hello", "octets" },
}
-- end of the rows
local CONVENTIONS = { [0x32] = "seg=", [0x34] = "off=", [0x36] = "v=", [0x38] = "t=", [0x3a] = "seq=" }

local f = ndn.fields
f.type = ProtoField.string("ndn.type", "Type")
f.name = ProtoField.string("ndn.name", "Name")
f.malformed = ProtoField.string("ndn.malformed", "Malformed")
f.unknown = ProtoField.uint32("ndn.unknown", "Unknown element", base.HEX)
f.can_be_prefix = ProtoField.bool("ndn.can_be_prefix", "CanBePrefix")
f.must_be_fresh = ProtoField.bool("ndn.must_be_fresh", "MustBeFresh")
f.hint = ProtoField.string("ndn.forwarding_hint", "ForwardingHint")
f.key = ProtoField.string("ndn.key_locator", "KeyLocator")

local NUMBERS = {
  [0x0a] = { "ndn.nonce", base.HEX }, [0x0c] = "ndn.lifetime", [0x22] = "ndn.hop_limit", [0x18] = "ndn.content_type",
  [0x19] = "ndn.freshness", [0x1b] = "ndn.signature_type", [0x28] = "ndn.signature_time", [0x2a] = "ndn.signature_sequence",
}
local OCTETS = {
  [0x15] = "ndn.content", [0x24] = "ndn.parameters", [0x17] = "ndn.signature", [0x2e] = "ndn.signature",
  [0x26] = "ndn.signature_nonce", [0x1d] = "ndn.key_digest",
}
local number_fields, octet_fields, flag_fields, by_filter = {}, {}, {}, {}
for _, row in ipairs(LINK_FIELDS) do
  local typ, name, filter, kind = row[1], row[2], row[3], row[4]
  TYPES[typ] = name
  if kind == "number" then
    NUMBERS[typ] = filter
  elseif kind == "octets" then
    OCTETS[typ] = filter
  else
    CONTAINERS[typ] = kind == "container" or nil
    flag_fields[typ] = ProtoField.bool(filter, name)
    f["flag" .. typ] = flag_fields[typ]
  end
end
for typ, how in pairs(NUMBERS) do
  local filter, shown = how, base.DEC
  if type(how) == "table" then filter, shown = how[1], how[2] end
  number_fields[typ] = ProtoField.uint64(filter, TYPES[typ], shown)
  f["n" .. typ] = number_fields[typ]
end
for typ, filter in pairs(OCTETS) do
  by_filter[filter] = by_filter[filter] or ProtoField.bytes(filter, TYPES[typ])
  octet_fields[typ] = by_filter[filter]
  f[filter] = by_filter[filter]
end

-- A variable-size number at `at`: the number and where it ends, or nothing if it does not end in `buffer` or is not the shortest.
local function var_number(buffer, at, till)
  if at >= till then return nil end
  local first = buffer(at, 1):uint()
  if first < 253 then return first, at + 1 end
  local size = ({ [253] = 2, [254] = 4 })[first]
  if not size or at + 1 + size > till then return nil end
  local number = buffer(at + 1, size):uint()
  if number < (size == 2 and 253 or 65536) then return nil end
  return number, at + 1 + size
end

local function element(buffer, at, till)
  local typ, after_type = var_number(buffer, at, till)
  if not typ then return nil end
  local length, value = var_number(buffer, after_type, till)
  if not length or value + length > till then return nil end
  return typ, value, value + length
end

local function component_uri(buffer, typ, value, till)
  local range = till > value and buffer(value, till - value) or nil
  if typ == 0x01 then return "sha256digest=" .. (range and range:bytes():tohex(true) or "") end
  if typ == 0x02 then return "params-sha256=" .. (range and range:bytes():tohex(true) or "") end
  if CONVENTIONS[typ] and range and (range:len() <= 2 or range:len() == 4 or range:len() == 8) then
    return CONVENTIONS[typ] .. tostring(range:len() == 8 and range:uint64() or range:uint())
  end
  local text, periods = {}, true
  for i = value, till - 1 do
    local octet = buffer(i, 1):uint()
    local character = string.char(octet)
    periods = periods and character == "."
    text[#text + 1] = character:match("[%w%-%._~]") and character or string.format("%%%02X", octet)
  end
  local uri = table.concat(text)
  if periods then uri = uri .. "..." end
  return typ == 0x08 and uri or (typ .. "=" .. uri)
end

local function name_uri(buffer, at, till)
  local parts = {}
  while at < till do
    local typ, value, after = element(buffer, at, till)
    if not typ then return nil end
    parts[#parts + 1] = "/" .. component_uri(buffer, typ, value, after)
    at = after
  end
  return #parts == 0 and "/" or table.concat(parts)
end

-- Whether the LpPacket that is being read holds only a piece of a packet.
local inside_fragmented = false
local dissect

-- One element with all in it; `inside` is the container's type. Returns where it ends, or nothing if it is malformed.
dissect = function(buffer, at, till, tree, inside, depth)
  local typ, value, after = element(buffer, at, till)
  if not typ or depth > 8 then return nil end
  local whole = buffer(at, after - at)
  if typ == 0x07 then
    local uri = name_uri(buffer, value, after)
    if not uri then return nil end
    local field = f.name
    if inside == 0x1e then field = f.hint elseif inside == 0x1c then field = f.key end
    tree:add(field, whole, uri)
  elseif number_fields[typ] then
    if after == value or after - value > 8 then return nil end
    tree:add(number_fields[typ], whole, buffer(value, after - value):uint64())
  elseif octet_fields[typ] then
    local sub = tree:add(octet_fields[typ], after > value and buffer(value, after - value) or buffer(at, 0))
    if after == value then sub:append_text(" (empty)") end
  elseif typ == 0x21 then tree:add(f.can_be_prefix, whole, true)
  elseif typ == 0x12 then tree:add(f.must_be_fresh, whole, true)
  elseif flag_fields[typ] and not CONTAINERS[typ] then tree:add(flag_fields[typ], whole, true)
  elseif typ == 0x50 then
    -- A piece of a larger packet cannot be read by itself.
    if not inside_fragmented then
      if after > value and not dissect(buffer, value, after, tree, typ, depth + 1) then
        tree:add(f.malformed, whole, "Fragment")
      end
    else
      tree:add(whole, "Fragment, a piece")
    end
  elseif CONTAINERS[typ] and typ ~= 0x1a then
    local sub = tree:add(whole, TYPES[typ])
    if typ == 0x05 or typ == 0x06 or typ == 0x64 then sub:add(f.type, whole, TYPES[typ]) end
    if flag_fields[typ] then sub:add(flag_fields[typ], whole, true) end
    local outer_fragmented = inside_fragmented
    if typ == 0x64 then inside_fragmented = false end
    local inner = value
    while inner < after do
      local inner_type, inner_value, inner_after = element(buffer, inner, after)
      if inner_type == 0x53 and inner_after > inner_value and buffer(inner_value, inner_after - inner_value):uint64() > UInt64(1) then
        inside_fragmented = true
      end
      inner = dissect(buffer, inner, after, sub, typ, depth + 1)
      if not inner then
        sub:add(f.malformed, whole, TYPES[typ])
        break
      end
    end
    inside_fragmented = outer_fragmented
  elseif TYPES[typ] then
    tree:add(whole, TYPES[typ])
  else
    tree:add(f.unknown, whole, typ)
  end
  return after
end

function ndn.dissector(buffer, pinfo, root)
  local at, length = 0, buffer:reported_length_remaining()
  if length == 0 then return 0 end
  pinfo.cols.protocol = "NDN"
  local tree = root:add(ndn, buffer())
  local packets = 0
  while at < buffer:len() do
    local first = buffer(at, 1):uint()
    -- What is shorter than a minimal Ethernet frame is filled up with zeros.
    if first == 0 and packets > 0 then break end
    local typ, _, after = element(buffer, at, buffer:len())
    if not typ and pinfo.port_type == 2 then
      -- A TCP segment ends within a packet.
      pinfo.desegment_offset, pinfo.desegment_len = at, DESEGMENT_ONE_MORE_SEGMENT
      return
    end
    inside_fragmented = false
    local ends = dissect(buffer, at, buffer:len(), tree, 0, 0)
    if not ends then
      tree:add(f.malformed, buffer(at), "packet")
      break
    end
    at = after
    packets = packets + 1
  end
end

DissectorTable.get("udp.port"):add(6363, ndn)
DissectorTable.get("udp.port"):add(56363, ndn)
DissectorTable.get("tcp.port"):add(6363, ndn)
DissectorTable.get("ethertype"):add(0x8624, ndn)
