# Reads a snapshot.pickle as PyTorch's tools do, checks that it is consistent, and prints what it adds up to as JSON.
import json
import pickle
import sys

with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)

live, in_use, peak, by_category, at_peak, segments = {}, 0, 0, {}, {}, {}
categories = set()
last_time = 0
for event in snapshot["device_traces"][0]:
    action, address, size = event["action"], event["addr"], event["size"]
    assert event["time_us"] >= last_time, "time goes on"
    last_time = event["time_us"]
    assert isinstance(event["frames"], list) and isinstance(event["stream"], int)
    categories.add(event["category"])
    for frame in event["frames"]:
        assert isinstance(frame["filename"], str) and isinstance(frame["name"], str) and frame["line"] == 0
    if action == "segment_alloc":
        segments[address] = size
    elif action == "segment_free":
        del segments[address]
    elif action == "alloc":
        assert address not in live, "allocated twice"
        assert any(begin <= address and address + size <= begin + room for begin, room in segments.items())
        live[address] = size
        in_use += size
        by_category[event["category"]] = by_category.get(event["category"], 0) + size
        if in_use > peak:
            peak, at_peak = in_use, {name: n for name, n in by_category.items() if n > 0}
    elif action == "free_completed":
        assert live.pop(address) == size
        in_use -= size
        by_category[event["category"]] -= size
    else:
        assert action == "free_requested", action
assert "unknown" in categories, "without it the viewer stops at the others"

reserved, allocated, requested, blocks = 0, 0, 0, {}
for segment in snapshot["segments"]:
    assert segment["device"] == 0 and segment["segment_type"] in ("large", "small")
    assert segments[segment["address"]] == segment["total_size"]
    address, active = segment["address"], 0
    for block in segment["blocks"]:
        assert block["address"] == address, "blocks tile their segment"
        address += block["size"]
        assert block["state"] in ("active_allocated", "inactive")
        if block["state"] == "active_allocated":
            blocks[block["address"]] = block["size"]
            active += block["size"]
            assert 0 < block["requested_size"] <= block["size"] and block["frames"]
            requested += block["requested_size"]
    assert address == segment["address"] + segment["total_size"]
    assert active == segment["active_size"] == segment["allocated_size"]
    reserved += segment["total_size"]
    allocated += active
assert blocks == live, "the trace ends with the blocks that are there"

print(json.dumps({"peak": peak, "in_use": in_use, "by_category_at_peak": at_peak, "held": reserved,
                  "allocated": allocated, "requested": requested}))
