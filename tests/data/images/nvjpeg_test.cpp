// nvJPEG itself beside libjpeg-turbo, on a GPU: how far their pixels differ, that a file's pixels do not depend on what
// is decoded with it, and the memory that it uses.
#include <algorithm>
#include <cmath>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/data/images/gpu_decoder.h"
#include "bantam/data/images/nvjpeg_library.h"
#include "tests/data/delivery/encoded_fixture.h"
#include "tests/data/delivery/jpeg_samples.h"
#include "tests/data/delivery/loader_fixture.h"
#include "tests/data/images/image_files.h"

namespace bantam::nvjpeg_test {
namespace {

using testing::difference_of;
using testing::FileBytes;
using testing::HostBatch;
using testing::JpegKind;
using testing::JpegSamples;
using testing::noise_image;
using testing::smooth_image;
using testing::write_jpeg;

using Files = std::vector<std::span<const std::byte>>;

class NvjpegTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
    runtime_ = std::make_unique<Runtime>(RuntimeOptions{.threads = 2});
    try {
      (void)NvjpegLibrary();
    } catch (const DeviceError& error) {
      GTEST_SKIP() << "no nvJPEG: skipped: " << error.what();
    }
    decoder_ = std::make_shared<GpuDecoder>(*runtime_, Device::cuda(0), 2);
  }
  /// Empty where nvJPEG does not decode the file.
  Image decode(const FileBytes& file) {
    GpuDecoder::Batch batch(*decoder_);
    const StoredRgb decoded = batch.decode(Files{file})[0];
    Image image;
    if (decoded.pixels != nullptr) decode_image(decoded, 3, image);
    return image;
  }
  testing::Difference to_cpu(const FileBytes& file) {
    Image cpu;
    decode_image(file, 3, cpu);
    const Image gpu = decode(file);
    if (gpu.pixels.size() == cpu.pixels.size()) return difference_of(gpu, cpu);
    ADD_FAILURE() << "not decoded";
    return {};
  }

  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<GpuDecoder> decoder_;
};

// Coefficients are the same integers. Each inverse transform is within 1 of the exact values (IEEE 1180), so that two
// differ by 2 at most. Conversion adds 1.772 times the difference of a chroma value at most, and a rounding on each
// side: 2 + 1.772 * 2 + 1 = 6.5.
TEST_F(NvjpegTest, PixelsWithoutChromaSamplingAreWithinSix) {
  constexpr int kGrey = 2, kColour = 6;
  for (const ImageSize size : {ImageSize{64, 64}, {37, 51}, {375, 500}, {1, 1}}) {
    for (const int quality : {50, 90, 100}) {
      const JpegKind kind{.quality = quality, .chroma_across = 1, .chroma_down = 1};
      EXPECT_LE(to_cpu(write_jpeg(smooth_image(size, 1), kind)).most, kGrey) << size.width << " " << quality;
      EXPECT_LE(to_cpu(write_jpeg(noise_image(size, 1), kind)).most, kGrey) << size.width << " " << quality;
      EXPECT_LE(to_cpu(write_jpeg(smooth_image(size, 3), kind)).most, kColour) << size.width << " " << quality;
      const testing::Difference noise = to_cpu(write_jpeg(noise_image(size, 3), kind));
      EXPECT_LE(noise.most, kColour) << size.width << " " << quality;
      EXPECT_LE(noise.mean, 1) << size.width << " " << quality;
    }
  }
}

// Chroma that changes by less than 1 from one sample to the next lies within 1 of either, however it is interpolated:
// 1.772 * 1 more than without sampling.
TEST_F(NvjpegTest, SlowlyChangingSampledChromaIsWithinEight) {
  constexpr int kMost = 8;
  Image image;
  image.reshape({120, 160}, 3);
  for (std::size_t p = 0; p < image.pixels.size() / 3; ++p) {
    const std::size_t x = p % 160, y = p / 160;
    image.pixels[3 * p] = static_cast<std::uint8_t>(100 + x / 4);
    image.pixels[3 * p + 1] = 120;
    image.pixels[3 * p + 2] = static_cast<std::uint8_t>(140 - y / 4);
  }
  for (const auto& [across, down] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    const testing::Difference difference =
        to_cpu(write_jpeg(image, {.quality = 95, .chroma_across = across, .chroma_down = down}));
    EXPECT_LE(difference.most, kMost) << across << " " << down;
    EXPECT_LE(difference.mean, 2) << across << " " << down;
  }
}

TEST_F(NvjpegTest, PixelsDependOnTheFileAlone) {
  std::vector<FileBytes> files;
  for (int i = 0; i < 16; ++i)
    files.push_back(write_jpeg(smooth_image({200 + i, 300 - i}, i % 5 == 4 ? 1 : 3, static_cast<std::uint32_t>(i)),
                               {.chroma_across = i % 5 == 4 ? 1 : 2,
                                .chroma_down = i % 5 == 4 ? 1 : 1 + i % 2,
                                .progressive = i % 4 == 3,
                                .restart_interval = i % 3 == 2 ? 4 : 0}));
  const Files views(files.begin(), files.end());
  for (int round = 0; round < 3; ++round) {
    GpuDecoder::Batch batch(*decoder_);
    std::vector<Image> together(files.size());
    const auto decoded = batch.decode(views);
    ASSERT_EQ(decoded.size(), files.size());
    for (std::size_t i = 0; i < files.size(); ++i)
      if (decoded[i].pixels != nullptr) decode_image(decoded[i], 3, together[i]);
    for (std::size_t i = 0; i < files.size(); ++i) EXPECT_TRUE(together[i].pixels == decode(files[i]).pixels) << i;
  }
  EXPECT_GT(decoder_->counts().gpu, decoder_->counts().cpu);
}

// Whatever nvJPEG makes of them, they end neither the device nor what is decoded with them.
TEST_F(NvjpegTest, DamagedFilesAreTheirOwn) {
  const FileBytes sound = write_jpeg(smooth_image({120, 160}, 3));
  const Image expected = decode(sound);
  ASSERT_FALSE(expected.pixels.empty());
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  const auto below = [&](std::size_t most) {
    return static_cast<std::size_t>(random.uniform() * static_cast<float>(most));
  };
  for (int round = 0; round < 50; ++round) {
    std::vector<FileBytes> files(8, sound);
    for (std::size_t i = 1; i < files.size(); ++i)
      for (std::size_t changes = 0; changes < i; ++changes)
        files[i][20 + below(files[i].size() - 22)] = static_cast<std::byte>(below(256));
    GpuDecoder::Batch batch(*decoder_);
    const auto decoded = batch.decode(Files(files.begin(), files.end()));
    ASSERT_NE(decoded[0].pixels, nullptr);
    Image image;
    decode_image(decoded[0], 3, image);
    EXPECT_TRUE(image.pixels == expected.pixels) << round;
  }
}

TEST_F(NvjpegTest, ItsMemoryIsTheBlocks) {
  const std::uint64_t before = runtime_->allocator(Device::cuda(0)).stats().in_use_bytes;
  const FileBytes largest = write_jpeg(noise_image({1448, 1448}, 3), {.chroma_across = 1, .chroma_down = 1});
  const FileBytes progressive =
      write_jpeg(smooth_image({1448, 1448}, 3), {.chroma_across = 1, .chroma_down = 1, .progressive = true});
  for (const FileBytes& file : {largest, progressive, largest}) (void)decode(file);
  EXPECT_GE(decoder_->counts().gpu, 2);
  EXPECT_EQ(runtime_->allocator(Device::cuda(0)).stats().in_use_bytes, before);
  RecordProperty("peak_device_bytes", std::to_string(decoder_->peak_device_bytes()));
  RecordProperty("peak_host_bytes", std::to_string(decoder_->peak_host_bytes()));
  std::printf("%s used %llu B of the GPU and %llu B of host memory\n", decoder_->name().c_str(),
              static_cast<unsigned long long>(decoder_->peak_device_bytes()),
              static_cast<unsigned long long>(decoder_->peak_host_bytes()));
}

TEST_F(NvjpegTest, BatchesHaveTheSameBitsForAnyCacheAndWorkers) {
  const auto reader = std::make_shared<JpegSamples>(45);
  PipelineOptions pipeline = full();
  pipeline.batch_size = 20;
  pipeline.augmentations.insert(pipeline.augmentations.begin(),
                                std::make_shared<testing::SomewhereIn>(ImageSize{90, 100}));
  std::vector<HostBatch> reference;
  for (const CacheKind cache : {CacheKind::off, CacheKind::ram}) {
    for (const std::int64_t workers : {0, 1, 4}) {
      pipeline.cache = cache;
      pipeline.prefetch = {.depth = 2, .workers = workers};
      ImageBatchSource source(*runtime_, reader,
                              {.pipeline = pipeline, .device = Device::cuda(0), .seed = 1, .decoder = decoder_});
      const std::vector<HostBatch> batches = testing::whole_epoch(source, Context::make(*runtime_, Device::cuda(0)), 2);
      if (reference.empty()) reference = batches;
      EXPECT_TRUE(batches == reference) << workers;
    }
  }
  EXPECT_GT(decoder_->counts().gpu, 0);
}

}  // namespace
}  // namespace bantam::nvjpeg_test
