// One handle and one block of memory for all batches; each batch has a state, a stream and a place for its pixels.
#include "bantam/data/images/gpu_decoder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/data/images/jpeg.h"
#include "bantam/data/images/memory_block.h"
#include "bantam/data/images/nvjpeg_library.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {
namespace {

constexpr std::int64_t kRgbBytes = 3;
/// Each picture begins at a multiple.
constexpr std::size_t kAlign = MemoryBlock::kAllocationUnit;
/// Bytes for one batch's pixels, and for the gaps between its pictures.
constexpr std::size_t kPictureBytes =
    static_cast<std::size_t>(GpuDecoder::kBatchPixels * kRgbBytes + GpuDecoder::kMostFiles * std::int64_t{kAlign});
/// Bytes that nvJPEG may allocate for a batch: coefficients of 16 bits in three full planes (12 MiB), planes of decoded
/// values (6 MiB), the files, and as much of the largest once more while a buffer grows.
constexpr std::size_t kDeviceWork = std::size_t{32} << 20;
constexpr std::size_t kHostWork = std::size_t{24} << 20;

constexpr AllocationTag kTag{Category::input, "nvJPEG"};

bool ends_as_jpeg(std::span<const std::byte> file) {
  return file.size() > 4 && file[0] == std::byte{0xFF} && file[1] == std::byte{0xD8} &&
         file[file.size() - 2] == std::byte{0xFF} && file[file.size() - 1] == std::byte{0xD9};
}

/// Failures of one file, which the CPU decoder may still decode, or explain. Damaged files can also fail while the
/// hardware decodes them (execution_failed); a device that no longer works is found by synchronising with it.
bool is_of_the_file(int status) {
  return status == NvjpegApi::bad_jpeg || status == NvjpegApi::jpeg_not_supported ||
         status == NvjpegApi::execution_failed || status == NvjpegApi::internal_error ||
         status == NvjpegApi::implementation_not_supported || status == NvjpegApi::incomplete_bitstream;
}

bool is_black(const StoredRgb& picture) {
  const auto values = static_cast<std::size_t>(picture.size.height * picture.size.width * kRgbBytes);
  return std::ranges::all_of(std::span(picture.pixels, values), [](std::uint8_t value) { return value == 0; });
}

/// A block that nvJPEG allocates from by its callbacks, which must not throw through its C code. A stream's work may
/// still use what is freed: the free waits.
struct Work {
  Work(Device device, std::byte* address, std::size_t bytes) : device(device), memory(address, bytes) {}
  Device device;
  MemoryBlock memory;

  static int allocate(void* context, void** address, std::size_t bytes, void*) noexcept {
    *address = nullptr;
    try {
      *address = static_cast<Work*>(context)->memory.allocate(std::max<std::size_t>(bytes, 1));
    } catch (...) {  // no host memory for the block's own list
    }
    return *address == nullptr ? 1 : 0;
  }
  static int release(void* context, void* address, std::size_t, void* stream) noexcept {
    Work& work = *static_cast<Work*>(context);
    if (address == nullptr) return 0;
    try {
      synchronize({.device = work.device, .handle = stream});
    } catch (...) {  // the decoding that failed reports it
    }
    return work.memory.free(address) ? 0 : 1;
  }
  NvjpegApi::Allocator callbacks() { return {allocate, release, this}; }
};

Tensor block(BfcAllocator& allocator, std::size_t bytes, Stream stream) {
  return {std::make_shared<Storage>(allocator, bytes, stream, kTag), Shape{static_cast<std::int64_t>(bytes)},
          DType::uint8};
}

/// A handle of nvJPEG, a state, or a parsed header; the function destroys it.
using NvjpegObject = std::unique_ptr<void, int (*)(void*)>;

/// The resources of one batch: a stream, nvJPEG's objects, and memory for the pictures.
struct Slot {
  explicit Slot(Device device) : stream(device) {}
  /// Destroys what belongs to the handle. The stream stays: the handle may still name it when it frees memory.
  void finish() {
    try {
      synchronize(stream.get());
    } catch (const Error&) {  // a broken device has said so
    }
    state.reset();
    header.reset();
  }
  OwnedStream stream;
  NvjpegObject state{nullptr, nullptr};
  NvjpegObject header{nullptr, nullptr};
  std::byte* device_pictures = nullptr;
  std::byte* host_pictures = nullptr;
  int begun_files = 0;  // the batch size that the state was initialised for; 0: none
  std::vector<StoredRgb> decoded;
};

}  // namespace

struct GpuDecoder::Impl {
  Device device;
  Tensor device_memory, host_memory;  // pictures of all batches, then nvJPEG's
  std::unique_ptr<NvjpegLibrary> library;
  std::unique_ptr<Work> device_work, host_work;
  NvjpegApi::Allocator device_callbacks, host_callbacks;
  NvjpegObject handle{nullptr, nullptr};
  bool in_hardware = false;
  std::vector<std::unique_ptr<Slot>> slots;

  std::mutex guard;
  std::condition_variable freed;
  std::vector<std::size_t> free_slots;
  std::atomic<std::int64_t> by_gpu = 0, by_cpu = 0;

  explicit Impl(Device device) : device(device) {}
  ~Impl();
  void open(Runtime& runtime, int batches);
  void allocate(Runtime& runtime, std::size_t batches);
  void create_handle();
  NvjpegObject created(int (*create)(void*, void**), int (*destroy)(void*)) const;
  void create_slots(std::size_t batches);
  bool hardware_decodes(Slot& slot, std::span<const std::byte> file) const;
  std::size_t bytes_needed(Slot& slot, std::span<const std::byte> file, StoredRgb& picture) const;
  std::span<const StoredRgb> decode(Slot& slot, std::span<const std::span<const std::byte>> files);
  void decode_chosen(Slot& slot, std::span<const std::span<const std::byte>> files, std::span<const std::size_t> which,
                     std::size_t bytes);
  int decode_together(Slot& slot, std::span<const std::span<const std::byte>> files,
                      std::span<const std::size_t> which);
  void decode_one_by_one(Slot& slot, std::span<const std::span<const std::byte>> files,
                         std::span<const std::size_t> which);
};

void GpuDecoder::Impl::open(Runtime& runtime, int batches) {
  const auto count = static_cast<std::size_t>(std::clamp(batches, 1, kMostBatches));
  allocate(runtime, count);
  if (device.meta) return;
  const DeviceScope scope(device);
  library = std::make_unique<NvjpegLibrary>();
  synchronize(runtime.stream(device));  // which may still use what lay where the block is
  create_handle();
  create_slots(count);
  if (device.kind == DeviceKind::cuda) runtime.note_overhead(device, "nvJPEG");
}

GpuDecoder::Impl::~Impl() {
  if (library == nullptr) return;
  const DeviceScope scope(device);
  for (const auto& slot : slots) slot->finish();
  handle.reset();
  slots.clear();
}

void GpuDecoder::Impl::allocate(Runtime& runtime, std::size_t batches) {
  const bool gpu = device.kind == DeviceKind::cuda;
  device_memory = block(runtime.allocator(device), batches * (kPictureBytes + kDeviceWork), runtime.stream(device));
  if (device.meta) return;
  host_memory = block(gpu ? runtime.pinned_allocator() : runtime.allocator(device),
                      batches * (kPictureBytes + kHostWork), Stream{});
  const std::size_t pictures = batches * kPictureBytes;
  const auto rest = [&](const Tensor& memory) {
    return std::make_unique<Work>(device, memory.as<std::byte>() + pictures, memory.bytes() - pictures);
  };
  device_work = rest(device_memory);
  host_work = rest(host_memory);
  device_callbacks = device_work->callbacks();
  host_callbacks = host_work->callbacks();
}

void GpuDecoder::Impl::create_handle() {
  const unsigned flags = NvjpegApi::kStrict | (library->interpolates_chroma() ? NvjpegApi::kInterpolated : 0);
  const auto create = [&](NvjpegApi::Backend backend) {
    void* created = nullptr;
    const int status = library->create(backend, &device_callbacks, &host_callbacks, flags, &created);
    if (status == NvjpegApi::success) handle = {created, library->destroy};
    return status;
  };
  in_hardware = create(NvjpegApi::hardware) == NvjpegApi::success;
  if (in_hardware) return;
  if (const int status = create(NvjpegApi::gpu_hybrid); status != NvjpegApi::success)
    throw DeviceError(
        fmt::format("nvJPEG {} does not work on {}: status {}", library->version(), to_string(device), status));
}

/// An object of the handle.
NvjpegObject GpuDecoder::Impl::created(int (*create)(void*, void**), int (*destroy)(void*)) const {
  void* object = nullptr;
  if (const int status = create(handle.get(), &object); status != NvjpegApi::success)
    throw DeviceError(fmt::format("nvJPEG {} cannot create a decoding state on {}: status {}", library->version(),
                                  to_string(device), status));
  return {object, destroy};
}

void GpuDecoder::Impl::create_slots(std::size_t batches) {
  for (std::size_t i = 0; i < batches; ++i) {
    slots.push_back(std::make_unique<Slot>(device));
    Slot& slot = *slots.back();
    slot.device_pictures = device_memory.as<std::byte>() + i * kPictureBytes;
    slot.host_pictures = host_memory.as<std::byte>() + i * kPictureBytes;
    free_slots.push_back(i);
    slot.state = created(library->create_state, library->destroy_state);
    slot.header = created(library->create_header, library->destroy_header);
  }
}

/// Whether the hardware decodes the file. GPUs differ in the files that they support, and may pass over the others.
bool GpuDecoder::Impl::hardware_decodes(Slot& slot, std::span<const std::byte> file) const {
  int unsupported = 1;
  const auto* bytes = reinterpret_cast<const unsigned char*>(file.data());
  return library->parse_header(handle.get(), bytes, file.size(), slot.header.get()) == NvjpegApi::success &&
         library->supports(handle.get(), slot.header.get(), &unsupported) == NvjpegApi::success && unsupported == 0;
}

/// Bytes of the file's picture, whose size and orientation it writes to `picture`; 0 where the CPU decodes the file.
std::size_t GpuDecoder::Impl::bytes_needed(Slot& slot, std::span<const std::byte> file, StoredRgb& picture) const {
  if (!ends_as_jpeg(file)) return 0;
  try {
    const JpegDecoder jpeg(file);
    if (!jpeg.has_common_form() || (in_hardware && !jpeg.has_one_scan())) return 0;
    const ImageHeader header = jpeg.stored_header();
    if (header.size.height * header.size.width > kBatchPixels) return 0;
    if (in_hardware && !hardware_decodes(slot, file)) return 0;
    picture = {header.size, header.orientation};
    const auto bytes = static_cast<std::size_t>(header.size.height * header.size.width * kRgbBytes);
    return (bytes + kAlign - 1) / kAlign * kAlign;
  } catch (const DataError&) {  // the CPU decoder's message is the sample's
    return 0;
  }
}

std::span<const StoredRgb> GpuDecoder::Impl::decode(Slot& slot, std::span<const std::span<const std::byte>> files) {
  const DeviceScope scope(device);
  slot.decoded.clear();
  std::vector<std::size_t> which;  // files that nvJPEG decodes
  std::size_t pixels = 0, end = 0;
  for (const auto& file : files.first(std::min<std::size_t>(files.size(), kMostFiles))) {
    StoredRgb picture;
    const std::size_t bytes = bytes_needed(slot, file, picture);
    const auto of_file = static_cast<std::size_t>(picture.size.height * picture.size.width);
    if (bytes > 0 && pixels + of_file > static_cast<std::size_t>(kBatchPixels)) break;
    if (bytes > 0) {
      which.push_back(slot.decoded.size());
      picture.pixels = reinterpret_cast<const std::uint8_t*>(slot.host_pictures + end);
    }
    slot.decoded.push_back(picture);
    pixels += bytes > 0 ? of_file : 0;
    end += bytes;
  }
  if (!which.empty()) decode_chosen(slot, files, which, end);
  const auto decoded = std::ranges::count_if(slot.decoded, [](const StoredRgb& one) { return one.pixels != nullptr; });
  by_gpu += decoded;
  by_cpu += std::ssize(slot.decoded) - decoded;
  return slot.decoded;
}

/// The first `bytes` of the slot's pictures. Hardware has been seen to pass over files without an error: a picture that
/// was not written is the CPU decoder's, as is one that is black, which looks the same.
void GpuDecoder::Impl::decode_chosen(Slot& slot, std::span<const std::span<const std::byte>> files,
                                     std::span<const std::size_t> which, std::size_t bytes) {
  const Stream stream = slot.stream.get();
  zero_bytes(slot.device_pictures, bytes, stream);
  if (decode_together(slot, files, which) != NvjpegApi::success) decode_one_by_one(slot, files, which);
  copy_bytes(slot.host_pictures, slot.device_pictures, bytes, stream);
  synchronize(stream);
  for (const std::size_t file : which) {
    StoredRgb& picture = slot.decoded[file];
    if (picture.pixels != nullptr && is_black(picture)) picture.pixels = nullptr;
  }
}

/// Returns nvJPEG's status; files after one that fails may not be decoded.
int GpuDecoder::Impl::decode_together(Slot& slot, std::span<const std::span<const std::byte>> files,
                                      std::span<const std::size_t> which) {
  std::array<const unsigned char*, kMostFiles> data{};
  std::array<std::size_t, kMostFiles> bytes{};
  std::array<NvjpegApi::Image, kMostFiles> images{};
  for (std::size_t i = 0; i < which.size(); ++i) {
    const std::span<const std::byte> file = files[which[i]];
    const StoredRgb& picture = slot.decoded[which[i]];
    data[i] = reinterpret_cast<const unsigned char*>(file.data());
    bytes[i] = file.size();
    const std::ptrdiff_t place = picture.pixels - reinterpret_cast<const std::uint8_t*>(slot.host_pictures);
    images[i].channel[0] = reinterpret_cast<unsigned char*>(slot.device_pictures + place);
    images[i].pitch[0] = static_cast<std::size_t>(picture.size.width * kRgbBytes);
  }
  const auto count = static_cast<int>(which.size());
  int status = NvjpegApi::success;
  if (slot.begun_files != count)
    status = library->begin_batch(handle.get(), slot.state.get(), count, 1, NvjpegApi::kInterleavedRgb);
  if (status == NvjpegApi::success)
    status = library->decode_batch(handle.get(), slot.state.get(), data.data(), bytes.data(), images.data(),
                                   slot.stream.get().handle);
  slot.begun_files = status == NvjpegApi::success ? count : 0;  // a failed batch needs a new initialisation
  return status;
}

/// Each file alone, so that one that nvJPEG refuses does not decide about others.
void GpuDecoder::Impl::decode_one_by_one(Slot& slot, std::span<const std::span<const std::byte>> files,
                                         std::span<const std::size_t> which) {
  for (const std::size_t& file : which) {
    synchronize(slot.stream.get());
    const int status = decode_together(slot, files, {&file, 1});
    if (status == NvjpegApi::success) continue;
    synchronize(slot.stream.get());  // throws where the device no longer works; the files are no longer in use
    if (status == NvjpegApi::allocator_failure)
      throw OutOfMemory(fmt::format("nvJPEG needs more than the {} on {} and {} of host memory that data.decode: gpu "
                                    "reserves for it: use data.decode: cpu",
                                    format_byte_size(slots.size() * kDeviceWork), to_string(device),
                                    format_byte_size(slots.size() * kHostWork)),
                        {.requested_bytes = 0, .limit_bytes = slots.size() * kDeviceWork});
    if (!is_of_the_file(status))
      throw DeviceError(
          fmt::format("nvJPEG {} failed on {} with status {}", library->version(), to_string(device), status));
    slot.decoded[file].pixels = nullptr;
  }
}

GpuDecoder::GpuDecoder(Runtime& runtime, Device device, int batches) : impl_(std::make_unique<Impl>(device)) {
  impl_->open(runtime, batches);
}

GpuDecoder::~GpuDecoder() = default;

GpuDecoder::Batch::Batch(GpuDecoder& decoder) : decoder_(decoder) {
  Impl& impl = *decoder_.impl_;
  std::unique_lock lock(impl.guard);
  impl.freed.wait(lock, [&] { return !impl.free_slots.empty(); });
  slot_ = impl.free_slots.back();
  impl.free_slots.pop_back();
}

GpuDecoder::Batch::~Batch() {
  Impl& impl = *decoder_.impl_;
  {
    const std::lock_guard lock(impl.guard);
    impl.free_slots.push_back(slot_);
  }
  impl.freed.notify_one();
}

std::span<const StoredRgb> GpuDecoder::Batch::decode(std::span<const std::span<const std::byte>> files) {
  Impl& impl = *decoder_.impl_;
  return impl.decode(*impl.slots[slot_], files);
}

std::string GpuDecoder::name() const {
  if (impl_->library == nullptr) return "nvJPEG";
  return fmt::format("nvJPEG {}, {}", impl_->library->version(), impl_->in_hardware ? "hardware" : "hybrid");
}

DecoderCounts GpuDecoder::counts() const { return {impl_->by_gpu, impl_->by_cpu}; }

std::uint64_t GpuDecoder::device_bytes() const { return impl_->device_memory.bytes(); }
std::uint64_t GpuDecoder::host_bytes() const { return impl_->device.meta ? 0 : impl_->host_memory.bytes(); }
std::uint64_t GpuDecoder::peak_device_bytes() const {
  return impl_->device.meta ? 0 : impl_->device_work->memory.peak_bytes();
}
std::uint64_t GpuDecoder::peak_host_bytes() const {
  return impl_->device.meta ? 0 : impl_->host_work->memory.peak_bytes();
}

}  // namespace bantam
