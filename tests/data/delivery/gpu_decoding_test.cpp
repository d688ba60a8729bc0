// Batches of JPEG files that nvJPEG decodes, with a stand-in for its library: the same bits as the CPU decoder's, for
// any cache and workers; samples that cannot be decoded; and who may ask for it.
#include <fstream>

#include "bantam/base/config/config.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/images/gpu_decoder.h"
#include "tests/data/delivery/encoded_fixture.h"
#include "tests/data/delivery/jpeg_samples.h"
#include "tests/data/delivery/loader_fixture.h"
#include "tests/data/images/fake_nvjpeg.h"

namespace bantam::gpu_decoding_test {
namespace {

using testing::HostBatch;
using testing::JpegSamples;
using testing::message_of;

constexpr std::int64_t kFiles = 45;

class GpuDecodingTest : public ::testing::Test {
 protected:
  std::vector<HostBatch> epoch(std::shared_ptr<const SampleReader> reader, PipelineOptions pipeline,
                               std::shared_ptr<GpuDecoder> decoder, bool staged = false,
                               std::shared_ptr<BrokenSamples> broken = nullptr) {
    ImageBatchSource source(runtime_, std::move(reader),
                            {.pipeline = std::move(pipeline),
                             .device = Device::cpu(),
                             .seed = 1,
                             .packed_file = folder_.path() / (decoder ? "gpu.cache" : "cpu.cache"),
                             .broken = std::move(broken),
                             .decoder = std::move(decoder),
                             .staged_on_cpu = staged});
    return testing::whole_epoch(source, Context::make(runtime_, Device::cpu()), 2);
  }

  testing::FakeNvjpeg fake_;
  testing::TemporaryFolder folder_;
  Runtime runtime_{RuntimeOptions{.threads = 1}};
};

PipelineOptions pipeline_of(std::shared_ptr<const Augmentation> first) {
  PipelineOptions pipeline = full();
  pipeline.batch_size = 20;  // more than are decoded together
  pipeline.augmentations.insert(pipeline.augmentations.begin(), std::move(first));
  return pipeline;
}

// The stand-in's pixels are the CPU decoder's, and windows are not so small that the CPU decodes at a reduced size.
TEST_F(GpuDecodingTest, BatchesHaveTheCpuDecodersBitsForAnyCacheAndWorkers) {
  const auto reader = std::make_shared<JpegSamples>(kFiles);
  const ImageSize size{90, 100};
  for (const bool chance : {true, false}) {
    std::shared_ptr<const Augmentation> first = std::make_shared<testing::WholeTo>(size);
    if (chance) first = std::make_shared<testing::SomewhereIn>(size);
    PipelineOptions pipeline = pipeline_of(first);
    const std::vector<HostBatch> reference = epoch(reader, pipeline, nullptr);
    ASSERT_EQ(reference.size(), 3u);
    for (const CacheKind cache : {CacheKind::off, CacheKind::ram, CacheKind::disk}) {
      for (const std::int64_t workers : {0, 1, 4}) {
        for (const bool staged : {false, true}) {
          const auto decoder = std::make_shared<GpuDecoder>(runtime_, Device::cpu(), 2);
          pipeline.cache = cache;
          pipeline.prefetch = {.depth = 2, .workers = workers};
          EXPECT_TRUE(epoch(reader, pipeline, decoder, staged) == reference)
              << "workers " << workers << ", staged " << staged << ", chance " << chance;
          if (cache == CacheKind::disk && !chance) continue;  // the file is there; a digest looks at some samples
          EXPECT_EQ(decoder->counts().gpu, kFiles - 6) << "all but those in four inks";
        }
      }
    }
  }
}

TEST_F(GpuDecodingTest, APackedFileOfDecodedSamplesIsOneDecoders) {
  const auto reader = std::make_shared<JpegSamples>(kFiles);
  PipelineOptions pipeline = pipeline_of(std::make_shared<testing::WholeTo>(ImageSize{90, 100}));
  pipeline.cache = CacheKind::disk;
  const auto decode = [&] {
    const auto decoder = std::make_shared<GpuDecoder>(runtime_, Device::cpu(), 1);
    (void)epoch(reader, pipeline, decoder);
    return decoder->counts().gpu;
  };
  const std::int64_t all = decode(), looked_at = decode();
  EXPECT_EQ(all - looked_at, kFiles - 6) << "the second time the file is there, and its digest alone is computed";
  fake_.set("FAKE_NVJPEG_HARDWARE", "1");
  EXPECT_GT(decode(), looked_at) << "another decoder's samples";
}

TEST_F(GpuDecodingTest, BrokenSamplesAreNamedOrReplacedAsByTheCpu) {
  const auto reader = std::make_shared<JpegSamples>(kFiles, std::vector<std::int64_t>{7, 8, 30});
  PipelineOptions pipeline = pipeline_of(std::make_shared<testing::SomewhereIn>(ImageSize{90, 100}));
  for (const CacheKind cache : {CacheKind::off, CacheKind::ram}) {
    pipeline.cache = cache;
    const auto decoder = [&] { return std::make_shared<GpuDecoder>(runtime_, Device::cpu(), 1); };
    const std::string message = message_of<DataError>([&] { (void)epoch(reader, pipeline, decoder()); });
    EXPECT_EQ(message, message_of<DataError>([&] { (void)epoch(reader, pipeline, nullptr); }));
    EXPECT_CONTAINS(message, ".jpg: JPEG: ");
    std::vector<HostBatch> reference;
    for (const std::int64_t workers : {0, 4}) {
      pipeline.prefetch = {.depth = 2, .workers = workers};
      const auto found = std::make_shared<BrokenSamples>();
      if (reference.empty()) reference = epoch(reader, pipeline, nullptr, false, std::make_shared<BrokenSamples>());
      EXPECT_TRUE(epoch(reader, pipeline, decoder(), false, found) == reference) << workers;
      EXPECT_EQ(found->count(), 3);
    }
  }
}

TEST_F(GpuDecodingTest, GpuNeedsAGpuAndFilesAndPlansItsMemory) {
  const std::string files = folder_.path().string();
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder_.path() / "train" / name);
    std::filesystem::create_directories(folder_.path() / "test" / name);
    for (const char* part : {"train", "test"}) {
      const testing::FileBytes file = testing::write_jpeg(testing::smooth_image({30, 40}, 3));
      std::ofstream(folder_.path() / part / name / "1.jpg", std::ios::binary)
          .write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
    }
  }
  const auto read = [&](const std::string& keys, const std::string& last = "") {
    const std::string text = "data:\n  format: image_folder\n  path: " + files + "\n" + keys +
                             "  pipeline: [resize: {size: [16, 16]}, batch: {size: 2}" + last + "]\n";
    return read_data_config(ConfigDocument::parse(text, "t.yaml").map().node("data"));
  };
  DataOptions options = read("");
  EXPECT_EQ(options.decode, DecodeKind::automatic);
  decide_decoder(options, Device::cuda(0));
  EXPECT_EQ(options.decode, DecodeKind::cpu) << "nobody has measured where a GPU is faster";
  EXPECT_EQ(open_data(runtime_, options, Device::cpu(), 1).decoder, "CPU");
  options = read("  decode: gpu\n");
  EXPECT_CONTAINS(message_of<ConfigError>([&] { decide_decoder(options, Device::cpu()); }), "decode: gpu needs a GPU");
  decide_decoder(options, Device::cuda(0));
  const Device meta = Device::meta_of(Device::cuda(0));
  const auto planned = [&](const DataOptions& data) {
    Runtime runtime({.threads = 1});
    const OpenedData opened = open_data(runtime, data, meta, 1);
    return runtime.allocator(meta).stats().in_use_bytes;
  };
  const std::uint64_t without = planned(read("  decode: cpu\n"));
  const auto bytes = [&](int batches) { return GpuDecoder(runtime_, meta, batches).device_bytes(); };
  EXPECT_EQ(planned(options) - without, bytes(1)) << "batches are made where they are used";
  EXPECT_EQ(planned(read("  decode: gpu\n", ", prefetch: {workers: 3}")) - without, bytes(3));
  EXPECT_EQ(planned(read("  decode: gpu\n", ", prefetch")) - without, bytes(GpuDecoder::kMostBatches));
  EXPECT_CONTAINS(message_of<ConfigError>([&] { (void)read("  decode: gppu\n"); }), "gpu");
  EXPECT_CONTAINS(message_of<ConfigError>([] {
                    (void)read_data_config(
                        ConfigDocument::parse("data:\n  format: generated\n  train_samples: 4\n  test_samples: 4\n"
                                              "  decode: gpu\n  pipeline: [batch: {size: 2}]\n",
                                              "t.yaml")
                            .map()
                            .node("data"));
                  }),
                  "for formats of image files");
}

}  // namespace
}  // namespace bantam::gpu_decoding_test
