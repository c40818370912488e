"""`python -m simulation.flips`: flip bits of a log and cut it at every byte; every harm must be found and named.

- A fact that comes back is one that was written, at its place: never a wrong body, whatever was harmed.
- A flipped bit in used bytes is named with a range that holds it, or lies in the last batch of the last file, which
  then is cut: that one cannot be told from a write the power interrupted.
- Of a log that ends anywhere the whole batches before that place come back, and nothing is called damaged.
"""

from __future__ import annotations

import argparse
import random
import sys

from librt.strings import BytesWriter

from millstream.storage.log.files import FOLDER, LogFiles, file_name
from millstream.storage.log.format import BATCH_HEAD_SIZE, FILE_HEADER_SIZE, append_record
from millstream.storage.log.recovery import RecoveredFile, read_file
from millstream.storage.log.write_ahead_log import Batch
from simulation.disk import SimulatedDisk
from simulation.failpoints import DeadlyFailpoints

TAIL = 64 * 1024

FactBytes = tuple[int, int, bytes]


class WrittenFile:
    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: list[FactBytes] = []
        self.ends: list[tuple[int, int]] = [(FILE_HEADER_SIZE, 0)]  # (where a batch ends, facts by then)

    def used(self) -> int:
        return self.ends[-1][0]

    def last_batch_at(self) -> int:
        return self.ends[-2][0]

    def facts_before(self, offset: int) -> int:
        return max((count for end, count in self.ends if end <= offset), default=0)


class HarmedLog:
    """A log of some files on a simulated disk, and what harm does to it. Every harm is mended again."""

    def __init__(self, seed: int, file_size: int, files: int) -> None:
        self._chance = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.disk.make_folder(FOLDER)
        self.files: list[WrittenFile] = []
        log_files = LogFiles(self.disk, DeadlyFailpoints(), file_size, 1, 0, salt=seed * 2 + 1)
        sequence = 1
        while len(self.files) < files or self.files[-1].used() < file_size * 9 // 10:
            batch, facts = self._make_batch(sequence)
            log_files.write(batch)
            name = file_name(log_files.current())
            if not self.files or self.files[-1].name != name:
                self.files.append(WrittenFile(name))
            file = self.files[-1]
            file.facts += facts
            end = file.used() + BATCH_HEAD_SIZE + len(batch.records)
            file.ends.append((end, len(file.facts)))
            sequence += len(facts)
        log_files.close()

    def _make_batch(self, first: int) -> tuple[Batch, list[FactBytes]]:
        chance = self._chance
        writer = BytesWriter()
        facts: list[FactBytes] = []
        for sequence in range(first, first + chance.choice((1, 1, 2, 5, 12))):
            kind = chance.randrange(1, 28)
            body = b"fact %d;" % sequence * chance.randrange(1, 40) + chance.randbytes(chance.randrange(60))
            append_record(writer, kind, body)
            facts.append((sequence, kind, body))
        return Batch(first, len(facts), writer.getvalue()), facts

    # --------------------------------------------------------------------- harm

    def random_flip(self) -> tuple[int, int, int]:
        """(file, offset, bit) in used bytes."""
        file = self._chance.randrange(len(self.files))
        return file, self._chance.randrange(self.files[file].used()), self._chance.randrange(8)

    def check_flip(self, number: int, offset: int, bit: int) -> str:
        """What went wrong; nothing is good."""
        file = self.files[number]
        is_last = number == len(self.files) - 1
        self.disk.flip_bit(file.name, offset, bit)
        found = read_file(self.disk, file.name, is_last)
        self.disk.flip_bit(file.name, offset, bit)
        place = f"{file.name}, bit {bit} of byte {offset}"
        wrong = self._find_wrong(file, found)
        if wrong:
            return f"{place}: {wrong}"
        named = [damage for damage in found.damage if damage.start <= offset < damage.end]
        if is_last and offset >= file.last_batch_at():
            whole = file.facts[: file.facts_before(file.last_batch_at())]
            is_cut = found.cut_at == file.last_batch_at() and as_facts(found) == whole
            return "" if is_cut and not found.damage else f"{place}: the last batch is not cut"
        if not named:
            return f"{place}: not named"
        if len(found.damage) > 1:
            return f"{place}: more is called damaged than was harmed"
        if offset >= FILE_HEADER_SIZE:
            return self._find_excess(file, found, offset)
        return "" if as_facts(found) == file.facts else f"{place}: facts behind a bad header are lost"

    def _find_excess(self, file: WrittenFile, found: RecoveredFile, offset: int) -> str:
        """One bit may cost the batch it lies in, and no fact of another one."""
        begin = max(end for end, _ in file.ends if end <= offset)
        finish = min(end for end, _ in file.ends if end > offset)
        others = file.facts[: file.facts_before(begin)] + file.facts[file.facts_before(finish) :]
        missing = set(others) - set(as_facts(found))
        return f"{file.name}, byte {offset}: facts of other batches are lost" if missing else ""

    def check_cut(self, length: int) -> str:
        """The last file ends at `length`."""
        file = self.files[-1]
        data = self.disk.content(file.name)
        self.disk.cut(file.name, length)
        found = read_file(self.disk, file.name, True)
        self.disk.replace(file.name, data)
        if as_facts(found) != file.facts[: file.facts_before(length)]:
            return f"{file.name} cut at {length}: not exactly the whole batches before it"
        if found.damage:
            return f"{file.name} cut at {length}: called damage"
        return ""

    def _find_wrong(self, file: WrittenFile, found: RecoveredFile) -> str:
        true = set(file.facts)
        facts = as_facts(found)
        if any(fact not in true for fact in facts):
            return "a fact came out that was never written"
        sequences = [sequence for sequence, _, _ in facts]
        return "" if sequences == sorted(set(sequences)) else "facts are out of order"


def as_facts(found: RecoveredFile) -> list[FactBytes]:
    return [(int(record.sequence), int(record.kind), record.body) for record in found.records]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation.flips", description=__doc__)
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--tail", type=int, default=TAIL, help="cut at every one of the last bytes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    faults: list[str] = []
    log = HarmedLog(options.seed, 32 * 1024, 4)
    for _ in range(options.flips):
        faults.append(log.check_flip(*log.random_flip()))
    print(f"{options.flips} flips over {len(log.files)} files: {sum(map(bool, faults))} wrong")
    log = HarmedLog(options.seed + 1, options.tail * 5 // 4, 1)
    used = log.files[-1].used()
    cuts = [log.check_cut(length) for length in range(max(0, used - options.tail), used + 1)]
    print(f"{len(cuts)} cuts of the last {options.tail} bytes: {sum(map(bool, cuts))} wrong")
    failed = [fault for fault in faults + cuts if fault]
    for fault in failed[:20]:
        print(fault)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
