"""A reader and a writer of torch.distributed.checkpoint's folders for tests: pickle and zipfile of the standard library, and no torch."""
import collections
import io
import itertools
import os
import pickle
import sys
import types
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


def module(name, *classes):
    """A module of torch that isn't there, so that pickle writes its names."""
    made = sys.modules.setdefault(name, types.ModuleType(name))
    for kind in classes:
        kind.__module__ = name
        kind.__qualname__ = kind.__name__
        setattr(made, kind.__name__, kind)
    return made


def stub(name):
    return type(name, (), {})


class Size(tuple):
    def __reduce__(self):
        return Size, (tuple(self),)


class Properties:
    def __getstate__(self):
        return self.dtype, self.dtype, False, 0, False, None


class Dtype:
    """torch.float32: pickled by its name."""

    def __init__(self, name):
        self.name, self.__module__ = name, "torch"

    def __reduce__(self):
        return self.name


METADATA, FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
Properties.__name__ = "TensorProperties"
Metadata, Tensor, Chunk, Index, Bytes, Meta = map(stub, ["Metadata", "TensorStorageMetadata", "ChunkStorageMetadata", "MetadataIndex",
                                                         "BytesStorageMetadata", "StorageMeta"])
Info = stub("_StorageInfo")
FLOAT32 = Dtype("float32")
STORAGE = stub("FloatStorage")


def rebuild(*args):
    raise AssertionError("only its name is written")


def name_modules():
    """Only while a folder is written."""
    module("torch", Size, STORAGE).float32 = FLOAT32
    rebuild.__name__ = rebuild.__qualname__ = "_rebuild_tensor_v2"
    module("torch._utils", rebuild)
    module(METADATA, Metadata, Tensor, Chunk, Index, Bytes, Meta, Properties)
    module(FILES, Info)


def of(kind, **state):
    made = kind()
    made.__dict__.update(state)
    return made


class Rebuilt:
    def __init__(self, sizes, n):
        strides, step = [], 1
        for size in reversed(sizes):
            strides.insert(0, step)
            step *= size
        self.args = (("storage", STORAGE, "0", "cpu", n), 0, tuple(sizes), tuple(strides), False, collections.OrderedDict())

    def __reduce__(self):
        return rebuild, (Storage(self.args[0]),) + self.args[1:]


class Storage:
    def __init__(self, id):
        self.id = id


class Pickler(pickle.Pickler):
    def persistent_id(self, object):
        return object.id if isinstance(object, Storage) else None


def pickled(object, protocol):
    out = io.BytesIO()
    name_modules()
    Pickler(out, protocol).dump(object)
    for name in ("torch", "torch._utils", METADATA, FILES):
        sys.modules.pop(name, None)
    return out.getvalue()


def archive(sizes, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", pickled(Rebuilt(sizes, len(data) // 4), 2))
        file.writestr("archive/data/0", data)
        file.writestr("archive/version", "3\n")
    return out.getvalue()


def grid(sizes, cuts):
    """Rectangles that cover the sizes, `cuts` along each dimension."""
    spans = [[(k * -(-n // c), min((k + 1) * -(-n // c), n)) for k in range(c) if k * -(-n // c) < n] for n, c in zip(sizes, cuts)]
    return [([a for a, _ in cell], [b - a for a, b in cell]) for cell in itertools.product(*spans)]


def cut_out(sizes, data, first, size):
    """Bytes of a rectangle of fp32."""
    steps = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        steps[d] = steps[d + 1] * sizes[d + 1]
    rows = itertools.product(*(range(f, f + n) for f, n in zip(first[:-1], size[:-1])))
    at = (sum(i * s for i, s in zip(row, steps)) + first[-1] for row in rows)
    return b"".join(data[4 * a:4 * (a + size[-1])] for a in at)


def write(folder, tensors, cuts, change=lambda metadata: None):
    """name -> (sizes, bytes of fp32), in rectangles over two files; `change` gets what .metadata will say."""
    os.makedirs(folder)
    files, metadata = {0: b"", 1: b""}, of(Metadata, state_dict_metadata={}, planner_data={}, storage_data={}, storage_meta=of(Meta))
    for name, (sizes, data) in tensors.items():
        chunks = []
        for k, (first, size) in enumerate(grid(sizes, cuts)):
            content, file = archive(size, cut_out(sizes, data, first, size)), k % 2
            chunks.append(of(Chunk, offsets=Size(first), sizes=Size(size)))
            metadata.storage_data[of(Index, fqn=name, offset=Size(first), index=k)] = of(
                Info, relative_path=f"__{file}_0.distcp", offset=len(files[file]), length=len(content))
            files[file] += content
        metadata.state_dict_metadata[name] = of(Tensor, properties=of(Properties, dtype=FLOAT32), size=Size(sizes), chunks=chunks)
    metadata.state_dict_metadata["train_state"] = of(Bytes)
    metadata.storage_data[of(Index, fqn="train_state", offset=None, index=None)] = of(
        Info, relative_path="__0_0.distcp", offset=0, length=0)
    change(metadata)
    for k, content in files.items():
        with open(os.path.join(folder, f"__{k}_0.distcp"), "wb") as file:
            file.write(content)
    with open(os.path.join(folder, ".metadata"), "wb") as file:
        file.write(pickled(metadata, 4))
