"""The Python package as its users have it: trains to an accuracy, plans, streams, stops, resumes, predicts, saves."""

import gc
import json
import os
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import bantam
from bantam import _library

CONFIG = {
    "device": "cpu",
    "model": {
        "input": [12, 12, 1],
        "layers": [{"conv2d": {"filters": 8, "kernel": 3, "stride": 2, "activation": "relu"}}, "flatten",
                   {"dense": {"units": 2}}],
    },
    "train": {"epochs": 4, "optimizer": {"adam": {"learning_rate": 0.005}}},
}


def stripes(count, seed):
    """Horizontal (0) and vertical (1) stripes with noise, (count, 12, 12, 1) uint8."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    along = np.arange(12) // 2 % 2 * 100
    images = np.where(labels[:, None, None] == 0, along[None, :, None], along[None, None, :])
    return (images + random.integers(20, 120, (count, 12, 12))).astype(np.uint8)[..., None], labels


def accuracy(model, images, labels, **options):
    return np.mean(model.predict(images, **options).argmax(1) == labels)


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.data, self.held_out = stripes(512, 1), stripes(128, 2)

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def test_arrays(self):
        heard = []
        plan = bantam.plan(CONFIG, data=self.data, validation=self.held_out)
        run = bantam.train(CONFIG, self.data, self.held_out, callback=lambda event: heard.append(event) or True,
                           folder=self.at("run"), class_names=["horizontal", "vertical"])
        self.assertGreaterEqual(run.validation_accuracy, 0.95)
        self.assertEqual(run.peak_bytes, plan.peak_bytes)
        self.assertEqual(sum(plan.by_category.values()), plan.peak_bytes)
        self.assertTrue(plan.fits)
        self.assertEqual(run.updates, 4 * 512 // 32)
        self.assertEqual([event.kind for event in heard].count("evaluated"), 4)
        self.assertEqual(heard[-1].kind, "epoch_end")
        self.assertIsNone(run.test_accuracy)
        self.assertGreaterEqual(accuracy(run.model, *self.held_out), 0.95)
        self.assertEqual(run.model.class_names, ["horizontal", "vertical"])
        self.assertEqual(run.model.memory_report()["device"], "cpu")
        run.model.save(self.at("copy.safetensors"))
        self.assertGreater(os.path.getsize(self.at("copy.safetensors")), 4 * run.parameters)

    def test_an_iterator_of_batches_is_what_its_arrays_are(self):
        images, labels = self.data
        batches = ((images[i:i + 64], labels[i:i + 64]) for i in range(0, 512, 64))
        one = bantam.train(CONFIG, batches, folder=self.at("one")).model.predict(self.held_out[0])
        other = bantam.train(CONFIG, self.data, folder=self.at("other")).model.predict(self.held_out[0])
        np.testing.assert_array_equal(one, other)

    def test_a_stream(self):
        images, labels = self.data
        calls = []

        def epoch():
            calls.append(1)
            for i in range(0, 512, 64):
                yield images[i:i + 64].astype(np.float32) / 255, labels[i:i + 64]

        held_out = (self.held_out[0].astype(np.float32) / 255, self.held_out[1])
        run = bantam.train(CONFIG, epoch, [held_out], steps_per_epoch=8)
        self.assertEqual(len(calls), 4)
        self.assertEqual(run.updates, 32)
        self.assertGreaterEqual(run.validation_accuracy, 0.9)
        self.assertIsNone(run.folder)
        self.assertGreaterEqual(accuracy(run.model, *held_out), 0.9)
        with self.assertRaisesRegex(bantam.DataError, "the iterator has no more batches"):
            bantam.train(CONFIG, epoch, steps_per_epoch=9)

        def broken():
            yield images[:8].astype(np.float32), labels[:8]
            raise KeyError("of the program")

        with self.assertRaisesRegex(KeyError, "of the program"):
            bantam.train(CONFIG, broken, steps_per_epoch=2)

    def test_a_stream_refuses_what_is_for_runs_that_are_saved(self):
        images, labels = self.data

        def epoch():
            yield images[:64].astype(np.float32) / 255, labels[:64]

        given = {"folder": self.at("run"), "overwrite": True, "resume": True, "threads": 2, "batch_size": 16,
                 "class_names": np.array(["horizontal", "vertical"])}
        for name, value in given.items():
            with self.assertRaisesRegex(bantam.BadArgument, f"with steps_per_epoch .*: expected no {name}$"):
                bantam.train(CONFIG, epoch, steps_per_epoch=1, **{name: value})
        with self.assertRaisesRegex(bantam.BadArgument, "expected no folder, resume$"):
            bantam.train(CONFIG, epoch, steps_per_epoch=1, folder=self.at("run"), resume=True)
        self.assertFalse(os.path.exists(self.at("run")))
        run = bantam.train(CONFIG, epoch, steps_per_epoch=1, folder=None, overwrite=False, resume=False, threads=0,
                           batch_size=0, class_names=None)
        self.assertEqual(run.updates, 4)

    def test_an_update_of_a_stream_is_repeated(self):
        images, labels = stripes(256, 5)
        config = {"device": "cpu", "memory": {"on_oom": "accumulate"},
                  "model": {"input": [12, 12, 1], "layers": ["flatten", {"dense": {"units": 256, "activation": "relu"}},
                                                             {"dense": {"units": 2}}]},
                  "train": {"epochs": 2, "accumulate": 2, "optimizer": {"sgd": {"learning_rate": 0.05}}}}

        def train(room):
            """With `room` more bytes than are in use once the second update is under way; None: without a limit."""
            engine, read, buffer = [], [], np.empty((64, 12, 12, 1), np.float32)

            def epoch():
                for i in range(0, 256, 64):
                    if i == 192 and room and len(read) == 3:
                        in_use = json.loads(_library.text("engine_memory_report", engine[0], b"cpu"))["in_use_bytes"]
                        _library.call("engine_set_limit", engine[0], b"cpu", in_use + room)
                    read.append(i // 64)
                    buffer[:] = images[i:i + 64].astype(np.float32) / 255  # over the batch before
                    yield buffer, labels[i:i + 64]

            class Stream(bantam._Stream):
                def next(self, _, epoch, batch, *arrays):
                    asked.append((epoch, batch))
                    return super().next(_, epoch, batch, *arrays)

            asked = []
            with unittest.mock.patch.object(bantam, "_Stream", Stream):
                run = bantam.train(config, epoch, steps_per_epoch=4, callback=lambda event: engine.append(event._engine))
            self.assertEqual(read, 2 * [0, 1, 2, 3])
            self.assertEqual(run.updates, 4)
            return asked, run.model.predict(images.astype(np.float32) / 255, as_input=True)

        in_order = [(epoch, batch) for epoch in range(2) for batch in range(4)]
        asked, expected = train(None)
        self.assertEqual(asked, in_order)
        # A batch has 36 KiB, its hidden values and their gradients 64 KiB each: half of these fit.
        asked, outputs = train(112 << 10)
        self.assertEqual(asked[:4] + asked[-6:], in_order[:4] + in_order[2:])
        self.assertLessEqual(set(asked[4:-6]), set(in_order[2:4]))  # where half is too much still
        # Halved micro-batches add the same gradients in another order.
        np.testing.assert_allclose(outputs, expected, atol=1e-5)
        self.assertGreater(np.abs(expected).max(), 0.05)

    def test_a_stream_of_which_an_update_is_not_finite(self):
        images, labels = self.data[0].astype(np.float32) / 255, self.data[1]
        images[5, 3, 3, 0] = np.nan

        def epoch():
            calls.append(1)
            for i in range(0, 512, 64):
                yield images[i:i + 64], labels[i:i + 64]

        def one_buffer():
            buffer = np.empty((64, 12, 12, 1), np.float32)
            for i in range(0, 512, 64):
                buffer[:] = images[i:i + 64]
                yield buffer, labels[i:i + 64]

        # The search begins when update 2 has read its batch already; after the last update of an epoch nothing has.
        for steps in (8, 1):
            calls = []
            with self.assertRaisesRegex(bantam.NotFiniteError, "first not finite is 'images' .* in place 5 of the update"):
                bantam.train(CONFIG, epoch, steps_per_epoch=steps)
            self.assertEqual(len(calls), 1)
        with self.assertRaisesRegex(bantam.NotFiniteError, "update 1 of .* the stream cannot go back to batch 0"):
            bantam.train(CONFIG, one_buffer, steps_per_epoch=8)

    def test_stops_and_goes_on(self):
        whole = bantam.train(CONFIG, self.data, folder=self.at("whole"))
        stopped = bantam.train(CONFIG, self.data, folder=self.at("parts"), callback=lambda event: event.kind != "epoch_end")
        self.assertTrue(stopped.stopped)
        self.assertLess(stopped.updates, whole.updates)
        rest = bantam.train(CONFIG, self.data, folder=self.at("parts"), resume=True)
        self.assertFalse(rest.stopped)
        images = self.held_out[0]
        np.testing.assert_array_equal(rest.model.predict(images), whole.model.predict(images))

    def test_the_answers_of_a_callback(self):
        for answer, stops in ((False, True), (np.False_, True), (np.float32(1) < 0, True), (np.True_, False), (None, False),
                              (0, False), (np.int64(0), False)):
            heard = []
            run = bantam.train(CONFIG, self.data, folder=self.at("run"), overwrite=True,
                               callback=lambda event: heard.append(event.kind) or answer)
            self.assertEqual(run.stopped, stops, repr(answer))
            self.assertEqual(run.updates == 4 * 512 // 32, not stops, repr(answer))

    def test_a_callback_that_raises(self):
        def callback(event):
            if event.kind == "progress":
                raise RuntimeError("seen enough")

        with self.assertRaisesRegex(RuntimeError, "seen enough"):
            bantam.train(CONFIG, self.data, folder=self.at("run"), callback=callback)
        self.assertTrue(os.path.exists(self.at("run/weights.safetensors")))

    def test_reports_while_training(self):
        reports = []
        bantam.train(CONFIG, self.data, folder=self.at("run"),
                     callback=lambda event: reports.append(event.memory_report()) if event.kind == "epoch_end" else None)
        self.assertEqual(len(reports), 4)
        for report in reports:
            self.assertEqual(sum(holder["bytes"] for holder in report["holders"]), report["in_use_bytes"])

    def test_an_event_that_is_kept_has_no_report(self):
        kept = []

        def keep(event):
            kept.append(event)
            if event.kind == "epoch_end":
                event.memory_report()
                with self.assertRaisesRegex(bantam.Error, "while the callback runs"):
                    kept[0].memory_report()  # of an earlier call

        bantam.train(CONFIG, self.data, folder=self.at("run"), callback=keep)
        for event in kept:
            with self.assertRaisesRegex(bantam.Error, "while the callback runs"):
                event.memory_report()

    def test_a_checkpoint_by_its_number(self):
        run = bantam.train(CONFIG, self.data, folder=self.at("run"), overrides=["checkpoint={every: 1epoch, min_interval: 0s, keep_last: 4}"])
        images = self.held_out[0]
        first = min(int(name.split("-")[1]) for name in os.listdir(self.at("run/checkpoints")))
        self.assertLess(first, 64)
        early, last = (bantam.Model.open(self.at("run"), checkpoint=at).predict(images) for at in (first, np.int64(64)))
        np.testing.assert_array_equal(last, run.model.predict(images))
        np.testing.assert_array_equal(early, bantam.Model.open(self.at("run"), checkpoint=str(first)).predict(images))
        self.assertTrue((early != last).any())
        with self.assertRaisesRegex(bantam.Error, "no checkpoint of 17 updates"):
            bantam.Model.open(self.at("run"), checkpoint=17)
        with self.assertRaisesRegex(bantam.Error, "no checkpoint of 0 updates"):
            bantam.Model.open(self.at("run"), checkpoint=0)

    def test_arrays_are_kept_as_long_as_they_are_read(self):
        config = bantam.Config(CONFIG, data=stripes(512, 1))
        gc.collect()
        one = bantam.train(config, folder=self.at("one")).model.predict(self.held_out[0])
        other = bantam.train(CONFIG, self.data, folder=self.at("other")).model.predict(self.held_out[0])
        np.testing.assert_array_equal(one, other)
        with self.assertRaisesRegex(bantam.BadArgument, "has its data already"):
            bantam.train(config, self.data)


class Models(unittest.TestCase):
    def setUp(self):
        images, self.labels = stripes(64, 3)
        self.images = images.astype(np.float32) / 255

    def test_steps(self):
        model = bantam.Model(CONFIG)
        first = model.step(self.images, self.labels)
        self.assertEqual(first.samples, 64)
        for _ in range(60):
            model.step(self.images, self.labels, read=False)
        all_of_them = model.metrics()
        self.assertEqual(all_of_them.updates, 61)
        last = model.evaluate(self.images, self.labels)
        self.assertLess(last.loss, first.loss)
        self.assertEqual(last.accuracy, 1.0)
        self.assertEqual(model.predict(self.images, as_input=True).shape, (64, 2))
        self.assertEqual(model.input_shape, (12, 12, 1))

    def test_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            state, weights = os.path.join(folder, "state"), os.path.join(folder, "weights")
            one, other = bantam.Model(CONFIG), bantam.Model(CONFIG)
            one.step(self.images, self.labels)
            one.save_state(state)
            other.load_state(state)
            for model in (one, other):
                model.step(self.images, self.labels)
            np.testing.assert_array_equal(one.predict(self.images), other.predict(self.images))
            one.save(weights)
            loaded = bantam.Model(CONFIG)
            loaded.load(weights)
            np.testing.assert_array_equal(one.predict(self.images), loaded.predict(self.images))

    def test_engines_limit(self):
        engine = bantam.Engine(limits={"cpu": 2000})
        with self.assertRaises(bantam.OutOfMemory) as refused:
            bantam.Model(CONFIG, engine=engine)
        self.assertIsInstance(refused.exception, MemoryError)
        engine.set_limit("cpu", 64 << 20)
        model = bantam.Model(CONFIG, engine=engine)
        self.assertEqual(engine.memory_report(), bantam.memory_report(model))
        self.assertGreaterEqual(engine.trim(), 0)

    def test_threads(self):
        def train(results, place):
            model = bantam.Model(CONFIG)
            for _ in range(10):
                model.step(self.images, self.labels)
            results[place] = model.predict(self.images)

        results = {}
        threads = [threading.Thread(target=train, args=(results, place)) for place in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(results[0], results[1])

    def test_errors(self):
        with self.assertRaisesRegex(bantam.ConfigError, "unknown layer 'dens'; did you mean 'dense'"):
            bantam.Model({"model": {"input": [4], "layers": [{"dens": {"units": 2}}]}})
        with self.assertRaisesRegex(bantam.ConfigError, "nowhere.yaml"):
            bantam.plan("nowhere.yaml")
        model = bantam.Model(CONFIG)
        with self.assertRaisesRegex(bantam.ShapeError, "images"):
            model.step(self.images[:, :8], self.labels)
        with self.assertRaisesRegex(bantam.DataError, "label 7"):
            model.step(self.images, np.full(64, 7))
        with self.assertRaisesRegex(bantam.BadArgument, "labels are float64; expected whole numbers"):
            model.step({"images": self.images, "labels": np.full(64, 0.7)})
        with self.assertRaisesRegex(bantam.BadArgument, "label 0 is 4294967296"):
            model.step(self.images, np.full(64, 1 << 32))
        with self.assertRaisesRegex(bantam.BadArgument, "expected .images, labels."):
            model.step([self.images])
        with self.assertRaises(bantam.DataError):
            bantam.Model.open("/nowhere")
        self.assertEqual(bantam.devices()["devices"][0]["device"], "cpu")
        self.assertIn("model", bantam.config_schema()["properties"])
        self.assertIn("learning_rate: 0.005", bantam.Config(CONFIG).resolved())


class Tensors(unittest.TestCase):
    def setUp(self):
        images, labels = stripes(64, 4)
        self.images, self.labels = images.astype(np.float32) / 255, labels.astype(np.int32)
        self.engine = bantam.Engine()

    def test_numpy_reads_and_hands_out_without_copies(self):
        tensor = bantam.tensor(self.images, engine=self.engine)
        seen = np.from_dlpack(tensor)
        self.assertEqual(seen.ctypes.data, tensor.address)
        del tensor
        gc.collect()
        np.testing.assert_array_equal(seen, self.images)
        back = bantam.from_dlpack(self.images, engine=self.engine)
        self.assertEqual(back.address, self.images.ctypes.data)
        self.images[0] = 7
        self.assertEqual(back.numpy()[0, 0, 0, 0], 7)

    def test_nothing_stays(self):
        before = self.engine.memory_report()["in_use_bytes"]
        tensor = bantam.tensor(self.images, engine=self.engine)
        self.assertGreater(self.engine.memory_report()["in_use_bytes"], before)
        capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))]  # that nobody takes
        seen = np.from_dlpack(tensor)
        del tensor
        del capsules
        gc.collect()
        self.assertGreater(self.engine.memory_report()["in_use_bytes"], before)
        del seen
        gc.collect()
        self.assertEqual(self.engine.memory_report()["in_use_bytes"], before)

    def test_what_may_only_be_read_stays_so(self):
        self.images.flags.writeable = False
        try:
            tensor = bantam.from_dlpack(self.images, engine=self.engine)
        except BufferError:
            self.skipTest("NumPy before 2.1 lends no array that may only be read")
        self.assertFalse(np.from_dlpack(tensor).flags.writeable)
        with self.assertRaises(bantam.Error):
            tensor.__dlpack__()  # the struct without a version cannot say so

    def test_a_model_on_tensors_computes_what_it_does_on_arrays(self):
        one, other = bantam.Model(CONFIG), bantam.Model(CONFIG, engine=self.engine)
        images = bantam.from_dlpack(self.images, engine=self.engine)
        labels = bantam.from_dlpack(self.labels, engine=self.engine)
        for _ in range(5):
            self.assertEqual(one.step(self.images, self.labels), other.step(images, labels))
        outputs = np.from_dlpack(other.forward(images))
        np.testing.assert_array_equal(outputs, one.predict(self.images))
        weights = {name: np.from_dlpack(tensor) for name, tensor in other.parameter_tensors().items()}
        self.assertEqual(sum(values.size for values in weights.values()), other.parameters)
        before = {name: values.copy() for name, values in weights.items()}
        other.step(images, labels)
        self.assertTrue(any((weights[name] != before[name]).any() for name in weights))

    def test_errors(self):
        model = bantam.Model(CONFIG, engine=self.engine)
        images = bantam.tensor(self.images, engine=self.engine)
        with self.assertRaisesRegex(bantam.BadArgument, "labels have to be one, too"):
            model.step(images, self.labels)
        with self.assertRaisesRegex(bantam.ShapeError, "the network reads"):
            model.forward(bantam.tensor(self.images[:, :8], engine=self.engine))
        for rate in (-1.0, float("inf"), float("nan")):
            with self.assertRaisesRegex(bantam.ConfigError, "expected a finite number"):
                model.set_learning_rate(rate)
        others = [bantam.tensor(values, engine=bantam.Engine()) for values in (self.images, self.labels)]
        with self.assertRaisesRegex(bantam.BadArgument, "another engine"):
            model.step(*others)
        with self.assertRaisesRegex(bantam.BadArgument, "another engine"):
            model.forward(others[0])
        with self.assertRaises(bantam.ShapeError):
            bantam.from_dlpack(self.images[:, ::2], engine=self.engine)
        with self.assertRaises(bantam.DTypeError):
            bantam.from_dlpack(np.zeros(4, np.complex64), engine=self.engine)
        with self.assertRaises(BufferError):
            images.__dlpack__(copy=True)


if __name__ == "__main__":
    unittest.main()
