#!/usr/bin/env python3
"""disk_trial.py PROGRAM LIBRARY: a disk that is full, read-only, or gone for a while, or until the end.

Training goes on, says so at once and at the end, keeps what is complete and tries again at the next checkpoint; the exit
code is 0 where everything is saved at the end, else 3, and --resume then ends with the bits of an undisturbed run. Full disks
are made by the preloaded LIBRARY (faults.cpp), and, where this process may mount, by a tmpfs.
"""
import argparse
import errno
import os
import pathlib
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import trial_runs  # noqa: E402

SHORT = ["train.epochs=30", "checkpoint.every=4updates", "data.test_samples=64", "checkpoint.best=off"]
LONG = ["train.epochs=60", "checkpoint.every=4updates", "data.test_samples=64", "checkpoint.best=off"]
FIRST, LAST = 140, 170  # calls that fail for a while
ALWAYS = 1_000_000_000


class Failed(Exception):
    pass


def require(condition, what, output):
    if not condition:
        raise Failed(f"{what}\n{output}")


class Trial:
    def __init__(self, program, library, folder):
        self.program, self.library, self.folder = os.path.abspath(program), os.path.abspath(library), folder
        (folder / "trial.yaml").write_text(trial_runs.CONFIG)
        self.short = trial_runs.undisturbed(self.program, folder, "short", SHORT)
        self.long = trial_runs.undisturbed(self.program, folder, "long", LONG)

    def run_full(self, last, error=errno.ENOSPC):
        return trial_runs.run(self.program, self.folder, ["trial.yaml", "--run-dir", "run", *SHORT], {
            "LD_PRELOAD": self.library, "BANTAM_FAULT_FOLDER": str(self.folder / "run"),
            "BANTAM_FAULT_CALL": str(FIRST), "BANTAM_FAULT_LAST": str(last),
            "BANTAM_FAULT_ERRNO": str(error)})

    def resume(self, folder, expected):
        code, output = trial_runs.run(self.program, folder, ["--resume", "run"])
        require(code == 0, f"--resume fails with exit code {code}", output)
        self.check(folder, expected, output)

    def check(self, folder, expected, output):
        reason = trial_runs.differences(folder / "run", expected)
        require(not reason, reason, output)
        left = trial_runs.half_written(folder / "run")
        require(not left, f"there are {', '.join(left)}", output)

    def full_for_a_while(self):
        code, output = self.run_full(LAST)
        require(code == 0, f"exit code {code}, expected 0", output)
        for text in ("No space left on device", "training goes on", "written again", "could not be written"):
            require(text in output, f"it does not say '{text}'", output)
        self.check(self.folder, self.short, output)

    def full_until_the_end(self, error=errno.ENOSPC):
        code, output = self.run_full(ALWAYS, error)
        require(code == 3, f"exit code {code}, expected 3", output)
        require(os.strerror(error) in output, "it does not say why", output)
        require("training goes on" in output, "it does not say that training goes on", output)
        require("error" in output.splitlines()[-1], "its last line tells of no error", output)
        require(len(trial_runs.checkpoints(self.folder / "run")) > 0, "what was complete is gone", output)
        self.resume(self.folder, self.short)

    def read_only(self):
        self.full_until_the_end(errno.EROFS)

    def long_run(self, folder):
        """A run that has a checkpoint."""
        process = trial_runs.start(self.program, folder, [str(self.folder / "trial.yaml"), "--run-dir", "run", *LONG])
        end = time.monotonic() + 30
        while not trial_runs.checkpoints(folder / "run") and time.monotonic() < end:
            time.sleep(0.001)
        return process

    def ended(self, process, code):
        output = process.communicate()[0].decode(errors="replace")
        require(process.returncode == code, f"exit code {process.returncode}, expected {code}", output)
        return output

    def vanished_folder(self):
        process = self.long_run(self.folder)
        os.rename(self.folder / "run", self.folder / "moved")
        output = self.ended(process, 0)
        run, found = self.folder / "run", trial_runs.digests(self.folder / "run")
        require(trial_runs.metrics_text(run).endswith(trial_runs.metrics_text(self.folder / "long")[-1000:]),
                "the last lines of metrics.jsonl differ", output)
        require({**found, "metrics.jsonl": ""} == {**self.long, "metrics.jsonl": ""}, "weights or state differ", output)
        require((run / "config.yaml").exists() and (run / "run.json").exists(), "the folder is not whole", output)
        code, output = trial_runs.run(self.program, self.folder, ["--resume", "run"])
        require(code == 0, f"--resume of the finished run fails with exit code {code}", output)

    def mounted(self, action):
        disk = self.folder / "disk"
        disk.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
        try:
            action(disk)
        finally:
            subprocess.run(["umount", "-l", disk], check=True)

    def full_tmpfs(self):
        def fill(disk):
            process = self.long_run(disk)
            with open(disk / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(bytes(4096))
                except OSError:
                    pass
            time.sleep(0.05)
            (disk / "filler").unlink()
            output = self.ended(process, 0)
            require("No space left on device" in output, "the disk was not full", output)
            self.check(disk, self.long, output)
        self.mounted(fill)

    def full_tmpfs_until_the_end(self):
        def fill(disk):
            process = self.long_run(disk)
            with open(disk / "filler", "wb", buffering=0) as filler:
                while process.poll() is None:
                    try:
                        filler.write(bytes(4096))
                    except OSError:
                        time.sleep(0.0001)
            output = self.ended(process, 3)
            require("training goes on" in output, "it does not say that training goes on", output)
            (disk / "filler").unlink()
            self.resume(disk, self.long)
        self.mounted(fill)


def may_mount(folder):
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    done = subprocess.run(["mount", "-t", "tmpfs", "none", folder], stderr=subprocess.DEVNULL).returncode == 0
    return done and subprocess.run(["umount", folder]).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("library", help="path of the library made from faults.cpp")
    options = parser.parse_args()
    failed = 0
    with trial_runs.scratch("bantam-disk-") as folder:
        trial = Trial(options.program, options.library, pathlib.Path(folder).resolve())
        parts = [trial.full_for_a_while, trial.full_until_the_end, trial.read_only, trial.vanished_folder]
        (trial.folder / "disk").mkdir()
        if may_mount(trial.folder / "disk"):
            parts += [trial.full_tmpfs, trial.full_tmpfs_until_the_end]
        else:
            print("no tmpfs: this process may not mount")
        for part in parts:
            for name in ("run", "moved"):
                shutil.rmtree(trial.folder / name, ignore_errors=True)
            try:
                part()
                print(f"{part.__name__}: nothing is lost", flush=True)
            except (Failed, OSError, ValueError) as failure:
                failed += 1
                print(f"{part.__name__}: LOST: {failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
