"""A reader and writer of safetensors files for tests, of nothing but the format's description."""
import json
import struct

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1}


def read(path):
    """name -> (dtype, shape, bytes); every byte of the file belongs to one tensor."""
    with open(path, "rb") as file:
        content = file.read()
    size, = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + size])
    metadata, body = header.pop("__metadata__", {}), content[8 + size:]
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = entry["data_offsets"]
        n = 1
        for length in entry["shape"]:
            n *= length
        if first != end or last - first != n * WIDTHS[entry["dtype"]]:
            raise ValueError(f"{path}: {name}: {entry} after byte {end}")
        tensors[name], end = (entry["dtype"], entry["shape"], body[first:last]), last
    if end != len(body):
        raise ValueError(f"{path}: {len(body) - end} bytes too many")
    return tensors, metadata


def written(tensors):
    header, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def floats(content):
    return struct.unpack(f"<{len(content) // 4}f", content)
