// nvJPEG's side of decoding, with a stand-in for its library: pixels, which files are whose, failures, and memory.
#include "bantam/data/images/gpu_decoder.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "bantam/base/error.h"
#include "bantam/data/images/memory_block.h"
#include "bantam/data/images/nvjpeg_library.h"
#include "tests/data/images/fake_nvjpeg.h"
#include "tests/data/images/image_files.h"
#include "tests/data/support.h"

namespace bantam::gpu_decoder_test {
namespace {

using testing::FileBytes;
using testing::message_of;
using testing::smooth_image;
using testing::write_jpeg;

using Files = std::vector<std::span<const std::byte>>;

class GpuDecoderTest : public ::testing::Test {
 protected:
  testing::FakeNvjpeg fake_;
  Runtime runtime_;
};

/// The file with a comment that tells the stand-in what to do.
FileBytes with_comment(FileBytes file, const std::string& text) {
  std::string comment = "...." + text + " ";
  const unsigned char start[] = {0xFF, 0xFE, 0, static_cast<unsigned char>(comment.size() - 2)};
  std::memcpy(comment.data(), start, sizeof start);
  const auto* bytes = reinterpret_cast<const std::byte*>(comment.data());
  file.insert(file.begin() + 2, bytes, bytes + comment.size());
  return file;
}

FileBytes failing_with(const FileBytes& file, int status) {
  return with_comment(file, "fake:" + std::to_string(status));
}

StoredRgb decode_one(GpuDecoder& decoder, std::span<const std::byte> file) {
  GpuDecoder::Batch batch(decoder);
  return batch.decode({&file, 1})[0];
}

bool is_decoded(GpuDecoder& decoder, const FileBytes& file) { return decode_one(decoder, file).pixels != nullptr; }

TEST_F(GpuDecoderTest, PixelsAreTheFilesWhateverItsForm) {
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  GpuDecoder::Batch batch(decoder);
  std::vector<FileBytes> files;
  for (const std::int64_t channels : {1, 3})
    for (int orientation = 0; orientation <= 8; ++orientation)
      for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}})
        files.push_back(write_jpeg(smooth_image({37, 50}, channels), {.chroma_across = channels == 1 ? 1 : across,
                                                                      .chroma_down = channels == 1 ? 1 : down,
                                                                      .progressive = orientation == 3,
                                                                      .restart_interval = orientation == 4 ? 2 : 0,
                                                                      .orientation = orientation}));
  const Files views(files.begin(), files.end());
  std::size_t done = 0;
  while (done < files.size()) {
    for (const StoredRgb& picture : batch.decode(std::span(views).subspan(done))) {
      ASSERT_NE(picture.pixels, nullptr) << done;
      const FileBytes& file = files[done++];
      EXPECT_EQ(picture.upright_size(), read_image_header(file).size);
      for (const std::int64_t channels : {1, 3, 4}) {
        Image ours, theirs, scratch;
        decode_image(picture, channels, ours);
        decode_image(file, channels, theirs);
        ASSERT_EQ(ours.pixels, theirs.pixels) << done << ": " << channels;
        const Sampling window{.top = 3, .left = 5, .window = {20, 30}, .size = {17, 23}, .mirrored = true};
        decode_sampled(picture, channels, window, scratch, ours);
        decode_sampled(file, channels, window, scratch, theirs);
        ASSERT_EQ(ours.pixels, theirs.pixels) << done << ": " << channels;
      }
    }
  }
  EXPECT_EQ(decoder.counts().gpu, std::ssize(files));
  EXPECT_EQ(decoder.counts().cpu, 0);
}

TEST_F(GpuDecoderTest, OtherFilesAreTheCpuDecoders) {
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  const Image image = smooth_image({40, 60}, 3);
  const FileBytes plain = write_jpeg(image);
  EXPECT_TRUE(is_decoded(decoder, plain));
  EXPECT_FALSE(is_decoded(decoder, write_jpeg(smooth_image({40, 60}, 4)))) << "CMYK";
  EXPECT_FALSE(is_decoded(decoder, write_jpeg(smooth_image({40, 60}, 4), {.ycck = true})));
  EXPECT_FALSE(is_decoded(decoder, write_jpeg(image, {.arithmetic = true})));
  EXPECT_FALSE(is_decoded(decoder, write_jpeg(image, {.chroma_across = 4, .chroma_down = 1}))) << "4:1:1";
  EXPECT_FALSE(is_decoded(decoder, testing::write_png(image)));
  EXPECT_FALSE(is_decoded(decoder, {}));
  const FileBytes cut(plain.begin(), plain.end() - 20);
  EXPECT_FALSE(is_decoded(decoder, cut)) << "without its end";
  const FileBytes endless(plain.begin(), plain.end() - 2);
  EXPECT_FALSE(is_decoded(decoder, endless)) << "which the CPU decodes: every block is there";
  FileBytes warned = plain;  // bytes before the first marker after the image's start
  warned.insert(warned.begin() + 20, 3, std::byte{1});
  EXPECT_FALSE(is_decoded(decoder, warned)) << "libjpeg warns of its header";
  FileBytes longer = plain;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(is_decoded(decoder, longer)) << "its end cannot be seen";
  EXPECT_FALSE(is_decoded(decoder, write_jpeg(smooth_image({1449, 1448}, 1)))) << "more than 2^21 pixels";
  EXPECT_TRUE(is_decoded(decoder, write_jpeg(smooth_image({1448, 1448}, 1), {.chroma_across = 1, .chroma_down = 1})));
  EXPECT_EQ(decoder.counts().gpu, 2);
  EXPECT_EQ(decoder.counts().cpu, 11);
}

TEST_F(GpuDecoderTest, HardwareDecodesFilesOfOneScan) {
  const Image image = smooth_image({40, 60}, 3);
  const FileBytes progressive = write_jpeg(image, {.progressive = true});
  GpuDecoder hybrid(runtime_, Device::cpu(), 1);
  EXPECT_EQ(hybrid.name(), "nvJPEG 12.3, hybrid");
  EXPECT_TRUE(is_decoded(hybrid, progressive));
  fake_.set("FAKE_NVJPEG_HARDWARE", "1");
  GpuDecoder hardware(runtime_, Device::cpu(), 1);
  EXPECT_EQ(hardware.name(), "nvJPEG 12.3, hardware");
  EXPECT_FALSE(is_decoded(hardware, progressive));
  EXPECT_TRUE(is_decoded(hardware, write_jpeg(image)));
}

// Hardware that passes over a file reports no error, so it is asked before.
TEST_F(GpuDecoderTest, HardwareIsAskedWhatItSupports) {
  const FileBytes plain = write_jpeg(smooth_image({40, 60}, 3)), soft = with_comment(plain, "soft:");
  GpuDecoder hybrid(runtime_, Device::cpu(), 1);
  EXPECT_TRUE(is_decoded(hybrid, soft));
  fake_.set("FAKE_NVJPEG_HARDWARE", "1");
  GpuDecoder hardware(runtime_, Device::cpu(), 1);
  GpuDecoder::Batch batch(hardware);
  const auto pictures = batch.decode(Files{plain, soft, plain});
  ASSERT_EQ(pictures.size(), 3u);
  EXPECT_NE(pictures[0].pixels, nullptr);
  EXPECT_EQ(pictures[1].pixels, nullptr);
  EXPECT_NE(pictures[2].pixels, nullptr);
}

// Else it would be another file's picture, of an earlier batch.
TEST_F(GpuDecoderTest, APictureThatWasNotWrittenIsTheCpuDecoders) {
  fake_.set("FAKE_NVJPEG_HARDWARE", "1");
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  const FileBytes plain = write_jpeg(smooth_image({40, 60}, 3));
  EXPECT_TRUE(is_decoded(decoder, plain));
  EXPECT_FALSE(is_decoded(decoder, with_comment(plain, "skip:")));
  EXPECT_TRUE(is_decoded(decoder, plain));
  EXPECT_EQ(decoder.counts().cpu, 1);
}

TEST_F(GpuDecoderTest, ABatchHasWhatFits) {
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  GpuDecoder::Batch batch(decoder);
  const FileBytes large = write_jpeg(smooth_image({900, 1000}, 1), {.chroma_across = 1, .chroma_down = 1});
  const FileBytes other = testing::write_png(smooth_image({4, 4}, 3));
  EXPECT_EQ(batch.decode(Files{large, large, large}).size(), 2u);
  EXPECT_EQ(batch.decode(Files{large, other, large, other, large}).size(), 4u) << "the CPU's files take no room";
  EXPECT_EQ(batch.decode(Files(40, write_jpeg(smooth_image({16, 16}, 3)))).size(), 16u);
}

TEST_F(GpuDecoderTest, ARefusedFileDecidesAboutNoOther) {
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  std::vector<FileBytes> files;
  for (int i = 0; i < 7; ++i) files.push_back(write_jpeg(smooth_image({20 + i, 30}, 3, static_cast<std::uint32_t>(i))));
  files[2] = failing_with(files[2], NvjpegApi::jpeg_not_supported);
  files[4] = failing_with(files[4], NvjpegApi::execution_failed);
  files[5] = failing_with(files[5], NvjpegApi::incomplete_bitstream);
  const Files views(files.begin(), files.end());
  GpuDecoder::Batch batch(decoder);
  for (int round = 0; round < 2; ++round) {
    const auto pictures = batch.decode(views);
    ASSERT_EQ(pictures.size(), files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      EXPECT_EQ(pictures[i].pixels == nullptr, i == 2 || i == 4 || i == 5) << i;
      if (pictures[i].pixels == nullptr) continue;
      Image ours, theirs;
      decode_image(pictures[i], 3, ours);
      decode_image(files[i], 3, theirs);
      EXPECT_EQ(ours.pixels, theirs.pixels) << i;
    }
  }
}

TEST_F(GpuDecoderTest, FailuresOfDeviceAndMemoryAreErrors) {
  const FileBytes file = write_jpeg(smooth_image({20, 30}, 3));
  GpuDecoder decoder(runtime_, Device::cpu(), 1);
  EXPECT_CONTAINS(message_of<DeviceError>([&] { (void)decode_one(decoder, failing_with(file, 7)); }), "status 7");
  EXPECT_TRUE(is_decoded(decoder, file)) << "the state is begun anew";
  fake_.set("FAKE_NVJPEG_BYTES", std::to_string(40 << 20));
  EXPECT_CONTAINS(message_of<OutOfMemory>([&] { (void)decode_one(decoder, file); }), "data.decode: cpu");
  fake_.set("FAKE_NVJPEG_BYTES", "0");
  EXPECT_TRUE(is_decoded(decoder, file));
}

TEST_F(GpuDecoderTest, WithoutALibraryTheErrorSaysWhatWasTried) {
  const auto message = [&] { return message_of<DeviceError>([&] { GpuDecoder(runtime_, Device::cpu(), 1); }); };
  fake_.set("FAKE_NVJPEG_BROKEN", "1");
  EXPECT_CONTAINS(message(), "nvJPEG 12.3 does not work on cpu: status 7");
  fake_.set("FAKE_NVJPEG_BROKEN", "0");
  fake_.set("FAKE_NVJPEG_NO_HEADERS", "1");
  EXPECT_CONTAINS(message(), "cannot create a decoding state on cpu: status 2") << "the state was destroyed first";
  fake_.set("BANTAM_NVJPEG", "/nowhere/libnvjpeg.so");
  EXPECT_CONTAINS(message(), "nvJPEG cannot be loaded (tried /nowhere/libnvjpeg.so)");
  fake_.set("BANTAM_NVJPEG", "libjpeg.so.62");
  EXPECT_CONTAINS(message(), "has no function nvjpegGetProperty");
}

TEST_F(GpuDecoderTest, AllMemoryIsTheAllocatorsAndPlanned) {
  const auto in_use = [&](Device device) { return runtime_.allocator(device).stats().in_use_bytes; };
  const std::uint64_t before = in_use(Device::cpu());
  {
    GpuDecoder decoder(runtime_, Device::cpu(), 3);
    EXPECT_EQ(in_use(Device::cpu()) - before, decoder.device_bytes() + decoder.host_bytes());
    EXPECT_EQ(decoder.peak_device_bytes(), 0u);
    ASSERT_TRUE(is_decoded(decoder, write_jpeg(smooth_image({20, 30}, 3))));
    EXPECT_GT(decoder.peak_device_bytes(), 0u);
    EXPECT_GT(decoder.peak_host_bytes(), 0u);
    EXPECT_EQ(in_use(Device::cpu()) - before, decoder.device_bytes() + decoder.host_bytes()) << "nothing is added";
    const auto holders = runtime_.allocator(Device::cpu()).holders();
    EXPECT_TRUE(std::ranges::any_of(holders, [](const Holder& holder) { return holder.owner == "nvJPEG"; }));
    const Device meta = Device::meta_of(Device::cuda(0));
    const GpuDecoder planned(runtime_, meta, 3);
    EXPECT_EQ(planned.device_bytes(), decoder.device_bytes());
    EXPECT_EQ(in_use(meta), decoder.device_bytes());
  }
  EXPECT_EQ(in_use(Device::cpu()), before);
}

TEST_F(GpuDecoderTest, ThreadsWaitForABatch) {
  GpuDecoder decoder(runtime_, Device::cpu(), 2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 5; ++t)
    threads.emplace_back([&, t] {
      const FileBytes file = write_jpeg(smooth_image({20 + t, 30}, 3, static_cast<std::uint32_t>(t)));
      Image ours, theirs;
      decode_image(file, 3, theirs);
      for (int i = 0; i < 20; ++i) {
        GpuDecoder::Batch batch(decoder);
        decode_image(batch.decode(Files(3, file))[i % 3], 3, ours);
        if (ours.pixels != theirs.pixels) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(decoder.counts().gpu, 5 * 20 * 3);
}

TEST(MemoryBlock, ReusesWhatIsFreedAndRefusesWhatDoesNotFit) {
  std::vector<std::byte> memory(4096 + 256);
  auto* start = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 255) / 256 * 256);
  MemoryBlock block(start, 4096);
  void* a = block.allocate(1000);
  void* b = block.allocate(2000);
  EXPECT_EQ(a, start);
  EXPECT_EQ(b, start + 1024);
  EXPECT_EQ(block.allocate(1025), nullptr);
  EXPECT_EQ(block.allocate(0), nullptr);
  EXPECT_TRUE(block.free(a));
  EXPECT_FALSE(block.free(a));
  EXPECT_FALSE(block.free(start + 256));
  EXPECT_EQ(block.allocate(1025), nullptr) << "1024 are free at either end";
  EXPECT_EQ(block.allocate(1024), a);
  EXPECT_EQ(block.allocate(1024), start + 3072);
  EXPECT_EQ(block.peak_bytes(), 4096u);
}

}  // namespace
}  // namespace bantam::gpu_decoder_test
