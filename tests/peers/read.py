"""read.py webdataset|energon DATASET DUMP KEYS: another project's reader gives the samples that
ours wrote to DUMP, in the order of KEYS.

Held against ours are keys and their order, the set of parts, every part byte by byte, and what the
reader decodes: arrays by dtype, shape and values, metadata, captions.
"""
import glob
import io
import json
import os
import sys

import numpy as np

PARTS = ("json", "latent.npy", "text.npy", "txt")


def webdataset_samples(dataset, decode):
    import webdataset
    shards = sorted(glob.glob(os.path.join(dataset, "*.tar")))
    samples = webdataset.WebDataset(shards, shardshuffle=False)
    return iter(samples.decode() if decode else samples)


def energon_samples(dataset, decode):
    import warnings
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
    from megatron.energon import (Cooker, DefaultTaskEncoder, SampleDecoder, WorkerConfig,
                                  get_loader, get_train_dataset, stateless)

    @stateless
    def as_it_is(sample):
        return sample

    class Encoder(DefaultTaskEncoder):
        cookers = [Cooker(as_it_is)]
        decoder = SampleDecoder() if decode else None

        def batch(self, samples):
            return samples

    found = get_train_dataset(dataset,
                              worker_config=WorkerConfig(rank=0, world_size=1, num_workers=0),
                              batch_size=1, shuffle_buffer_size=None, max_samples_per_sequence=None,
                              parallel_shard_iters=1, shuffle_over_epochs_multiplier=None,
                              repeat=False, task_encoder=Encoder())
    for batch in get_loader(found):
        yield batch[0]


def check(ok, what):
    if not ok:
        sys.exit(f"differs: {what}")


def ours(dump, key):
    paths = {p: f"{dump}/{key}.{p}" for p in PARTS}
    return {p: open(path, "rb").read() for p, path in paths.items() if os.path.exists(path)}


def check_decoded(sample, want, key):
    for part in ("latent.npy", "text.npy"):
        array, reference = np.asarray(sample[part]), np.load(io.BytesIO(want[part]))
        alike = array.dtype == reference.dtype == np.float32 and array.shape == reference.shape
        check(alike and (array == reference).all(), f"{key} {part}")
    meta = sample["json"] if isinstance(sample["json"], dict) else json.loads(sample["json"])
    channels, frames, height, width = sample["latent.npy"].shape
    check(meta == json.loads(want["json"]), f"{key} json")
    said = (1 + (meta["frames"] - 1) // 8, meta["height"] // 8, meta["width"] // 8)
    check((frames, height, width) == said, f"{key} shape")
    check(channels == 16 and sample["text.npy"].shape[0] == meta["text_len"],
          f"{key} channels or text rows")
    check(sample.get("txt", "") == meta.get("caption", ""), f"{key} caption")


def main():
    reader, dataset, dump, keys_path = sys.argv[1:]
    samples = {"webdataset": webdataset_samples, "energon": energon_samples}[reader]
    keys = open(keys_path).read().split()
    for decode in (False, True):
        got = list(samples(dataset, decode))
        seen = [s["__key__"] for s in got]
        check(seen == keys, f"{len(seen)} keys, ours are {len(keys)}, or their order")
        for sample, key in zip(got, keys):
            want = ours(dump, key)
            parts = sorted(p for p in sample if not p.startswith("__"))
            check(sorted(want) == parts, f"{key} parts {sorted(sample)}")
            if decode:
                check_decoded(sample, want, key)
            else:
                check(all(sample[p] == want[p] for p in want), f"{key} bytes")
    print(f"{len(keys)} samples")


main()
