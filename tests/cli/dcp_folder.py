"""A reader of torch.distributed.checkpoint's folders for tests: pickle and zipfile of the standard library, and no torch."""
import io
import os
import pickle
import zipfile

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "FloatStorage": 4, "BFloat16Storage": 2, "HalfStorage": 2}


class Named:
    """Stands for a class or function of torch: remembers what it was made of."""

    def __init__(self, *args):
        self.args = args

    def __setstate__(self, state):
        self.state = state


class Reader(pickle.Unpickler):
    """Every global is a class of its own, by name."""

    def __init__(self, file):
        super().__init__(file)
        self.known = {}

    def find_class(self, module, name):
        if module not in ("torch", "torch._utils", "torch.serialization", "collections", "torch.distributed.checkpoint.metadata",
                          "torch.distributed.checkpoint.filesystem"):
            raise ValueError(f"{module}.{name}")
        return self.known.setdefault(name, type(name, (Named,), {}))

    def persistent_load(self, what):
        return what


def read_archive(content):
    """(type of the storage, sizes, strides, bytes) of what torch.save wrote."""
    archive = zipfile.ZipFile(io.BytesIO(content))
    if archive.testzip() or any(i.compress_type != zipfile.ZIP_STORED for i in archive.infolist()):
        raise ValueError(archive.namelist())
    rebuilt = Reader(io.BytesIO(archive.read("archive/data.pkl"))).load()
    storage, offset, sizes, strides = rebuilt.args[:4]
    if archive.read("archive/byteorder") != b"little" or offset != 0 or storage[0] != "storage" or storage[2:4] != ("0", "cpu"):
        raise ValueError(storage)
    data = archive.read("archive/data/0")
    if len(data) != storage[4] * WIDTHS[storage[1].__name__]:
        raise ValueError(storage)
    return storage[1].__name__, sizes, strides, data


def read(folder):
    """name -> (dtype, sizes, bytes, number of chunks), put together from the chunks' rows."""
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        metadata = Reader(file).load().state
    tensors = {}
    for name, stored in metadata["state_dict_metadata"].items():
        dtype, sizes = stored.state["properties"].state[0].__name__, stored.state["size"].args[0]
        tensors[name] = [dtype, list(sizes), {}, len(stored.state["chunks"])]
        if metadata["planner_data"][name] != (name,):
            raise ValueError(name)
    places = {}
    for index, info in metadata["storage_data"].items():
        name, offset, at = index.state["fqn"], index.state["offset"].args[0], info.state
        with open(os.path.join(folder, at["relative_path"]), "rb") as file:
            file.seek(at["offset"])
            storage, sizes, strides, data = read_archive(file.read(at["length"]))
        places.setdefault(at["relative_path"], []).append((at["offset"], at["length"]))
        chunk = metadata["state_dict_metadata"][name].state["chunks"][index.state["index"]].state
        if (chunk["offsets"].args[0], chunk["sizes"].args[0]) != (offset, sizes) or any(offset[1:]):
            raise ValueError(name)
        tensors[name][2][offset[0]] = data
    for file, spans in places.items():  # every byte of a file is one archive's
        end = 0
        for offset, length in sorted(spans):
            if offset != end:
                raise ValueError(file)
            end += length
        if end != os.path.getsize(os.path.join(folder, file)):
            raise ValueError(file)
    return {name: (dtype, sizes, b"".join(content for _, content in sorted(parts.items())), n)
            for name, (dtype, sizes, parts, n) in tensors.items()}
