"""NFD management's structures made by python-ndn, for generate_vectors.py."""

from ndn.app_support import nfd_mgmt
from ndn.encoding import Component, Name


def outer(typ, value):
    return bytes(Component.from_bytes(bytes(value), typ))


def management(vectors):
    def fill(model, values):
        for field, value in values.items():
            setattr(model, field, value)
        return model

    def strategy(uri):
        return fill(nfd_mgmt.Strategy(), {"name": Name.from_str(uri)})

    whole = {
        "name": "/my/prefix", "face_id": 262, "uri": "udp4://192.0.2.1:6363", "local_uri": "udp4://192.0.2.2:6363",
        "origin": 255, "cost": 10, "capacity": 65536, "count": 100, "base_congestion_mark_interval": 100000000,
        "default_congestion_threshold": 65536, "mtu": 1500, "flags": 3, "mask": 7,
        "strategy": "/localhost/nfd/strategy/asf/v=5", "expiration_period": 3600000,
    }
    cases = {
        "register": {"name": "/my/prefix"},
        "register over a face": {"name": "/my/prefix", "face_id": 262, "origin": 0, "cost": 0, "flags": 1},
        "register that expires": {"name": "/my/prefix", "origin": 65, "cost": 0, "flags": 1, "expiration_period": 3600000},
        "face": {"uri": "udp4://192.0.2.1:6363"}, "strategy": {"name": "/", "strategy": "/localhost/nfd/strategy/multicast"},
        "cache": {"capacity": 0, "flags": 0, "mask": 3}, "all": whole, "empty": {},
    }
    for persistency in nfd_mgmt.FacePersistency:
        # python-ndn's numbers are ndn-cxx's: persistent 0, on-demand 1, permanent 2.
        cases[f"persistency {persistency.name}"] = {"uri": "tcp4://192.0.2.1:6363", "face_persistency": persistency}

    def parameters(values):
        made = nfd_mgmt.ControlParametersValue()
        for field, value in values.items():
            setattr(made, field, strategy(value) if field == "strategy" else value)
        return made

    def shown(values):
        return {field: getattr(value, "value", value) for field, value in values.items()}

    for ident, values in cases.items():
        outside = nfd_mgmt.ControlParameters()
        outside.cp = parameters(values)
        vectors.add("control_parameters", ident, outside.encode(), **shown(values))
    for ident, code, text, body in (("ok", 200, "OK", cases["all"]), ("no body", 404, "not found", None), ("empty text", 400, "", None)):
        made = fill(nfd_mgmt.ControlResponse(), {"status_code": code, "status_text": text})
        if body is not None:
            made.body = parameters(body)
        vectors.add("control_response", ident, outer(0x65, made.encode()), status_code=code, status_text=text, body=body)

    general = {field.name: 1000 + i for i, field in enumerate(nfd_mgmt.GeneralStatus._encoded_fields) if field.type_num < 0xC8}
    general["nfd_version"] = "24.07"
    vectors.add("forwarder_status", "counters in sequence", fill(nfd_mgmt.GeneralStatus(), general).encode(), **general)

    face = {"face_id": 300, "uri": "udp4://192.0.2.1:6363", "local_uri": "udp4://192.0.2.2:6363", "expiration_period": 600000,
            "face_scope": 0, "face_persistency": 1, "link_type": 0, "base_congestion_mark_interval": 100000000,
            "default_congestion_threshold": 65536, "mtu": 1500, "n_in_interests": 1, "n_in_data": 256, "n_in_nacks": 0,
            "n_out_interests": 65536, "n_out_data": 2**32, "n_out_nacks": 3, "n_in_bytes": 2**40, "n_out_bytes": 2**53 - 1, "flags": 7}
    local = {"face_id": 1, "uri": "internal://", "local_uri": "internal://", "face_scope": 1, "face_persistency": 2, "link_type": 0,
             "n_in_interests": 0, "n_in_data": 0, "n_in_nacks": 0, "n_out_interests": 0, "n_out_data": 0, "n_out_nacks": 0,
             "n_in_bytes": 0, "n_out_bytes": 0, "flags": 0}
    enums = {"face_scope": nfd_mgmt.FaceScope, "face_persistency": nfd_mgmt.FacePersistency, "link_type": nfd_mgmt.FaceLinkType}

    def typed(values):
        flags = {"flags": nfd_mgmt.FaceFlags(values["flags"])} if "flags" in values else {}
        return {**values, **flags, **{field: of(values[field]) for field, of in enums.items() if field in values}}

    message = nfd_mgmt.FaceStatusMsg()
    message.face_status = [fill(nfd_mgmt.FaceStatus(), typed(values)) for values in (local, face)]
    vectors.add("face_dataset", "two faces", message.encode(), faces=[local, face])

    for ident, values in {"by id": {"face_id": 300}, "by scheme": {"uri_scheme": "udp4"}, "by both URIs": {"uri": face["uri"], "local_uri": face["local_uri"]},
                          "by kind": {"face_scope": 0, "face_persistency": 1, "link_type": 0}}.items():
        outside = nfd_mgmt.FaceQueryFilter()
        outside.face_query_filter = fill(nfd_mgmt.FaceQueryFilterValue(), typed(values))
        vectors.add("face_query_filter", ident, outside.encode(), **values)

    event = {"face_event_kind": 2, "face_id": 300, "uri": face["uri"], "local_uri": face["local_uri"], "face_scope": 0,
             "face_persistency": 1, "link_type": 0, "flags": 1}
    outside = nfd_mgmt.FaceEventNotification()
    outside.event = fill(nfd_mgmt.FaceEventNotificationValue(), {**typed(event), "face_event_kind": nfd_mgmt.FaceEventKind(2)})
    vectors.add("face_event", "destroyed", outside.encode(), **event)

    routes = [{"face_id": 262, "origin": 0, "cost": 0, "flags": 1}, {"face_id": 300, "origin": 255, "cost": 10, "flags": 2, "expiration_period": 3600000}]
    entry = fill(nfd_mgmt.RibEntry(), {"name": Name.from_str("/my/prefix")})
    entry.routes = [fill(nfd_mgmt.Route(), {**r, "flags": nfd_mgmt.RouteFlags(r["flags"])}) for r in routes]
    rib = nfd_mgmt.RibStatus()
    rib.entries = [entry]
    vectors.add("rib_dataset", "one name, two routes", rib.encode(), entries=[{"name": "/my/prefix", "routes": routes}])

    hops = [{"face_id": 262, "cost": 0}, {"face_id": 300, "cost": 10}]
    entries = []
    for uri in ("/", "/my/prefix"):
        entry = fill(nfd_mgmt.FibEntry(), {"name": Name.from_str(uri)})
        entry.next_hop_records = [fill(nfd_mgmt.NextHopRecord(), hop) for hop in hops]
        entries.append(entry)
    fib = nfd_mgmt.FibStatus()
    fib.entries = entries
    vectors.add("fib_dataset", "two names", fib.encode(), entries=[{"name": uri, "next_hops": hops} for uri in ("/", "/my/prefix")])

    choices = {"/": "/localhost/nfd/strategy/best-route/v=5", "/my/prefix": "/localhost/nfd/strategy/multicast/v=4"}
    chosen = nfd_mgmt.StrategyChoiceMsg()
    chosen.strategy_choices = [fill(nfd_mgmt.StrategyChoice(), {"name": Name.from_str(uri), "strategy": strategy(to)}) for uri, to in choices.items()]
    vectors.add("strategy_dataset", "two choices", chosen.encode(), entries=[{"name": uri, "strategy": to} for uri, to in choices.items()])

    cache = {"capacity": 65536, "flags": 3, "n_cs_entries": 100, "n_hits": 7, "n_misses": 300}
    vectors.add("cs_info", "some", outer(0x80, fill(nfd_mgmt.CsInfo(), cache).encode()), **cache)
