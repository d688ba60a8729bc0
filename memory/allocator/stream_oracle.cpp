// Marks as CUDA events, pooled: an event costs microseconds to make and nothing to use again.
#include "bantam/memory/allocator/stream_oracle.h"

#include <vector>

namespace bantam {
namespace {

class DeviceOracle final : public StreamOracle {
 public:
  bool asynchronous(Stream stream) const override { return stream.device.is_cuda(); }

  Mark record(Stream stream) override {
    const Mark mark = take(stream.device);
    try {
      marks_[mark].event.record(stream);
    } catch (...) {
      recycle(mark);
      throw;
    }
    return mark;
  }
  bool done(Mark mark) override { return marks_[mark].event.done(); }
  void make_wait(Mark mark, Stream stream) override { marks_[mark].event.make_wait(stream); }
  void synchronize(Mark mark) override { marks_[mark].event.synchronize(); }
  void recycle(Mark mark) noexcept override { unused_.push_back(mark); }  // room was reserved when the mark was made

 private:
  struct Pooled {
    Device device;
    Event event;
  };

  // Events belong to a device. An allocator sees one or two devices, so that the last unused marks nearly always fit.
  Mark take(Device device) {
    for (std::size_t i = unused_.size(); i-- > 0;) {
      const Mark mark = unused_[i];
      if (marks_[mark].device != device) continue;
      unused_[i] = unused_.back();
      unused_.pop_back();
      return mark;
    }
    marks_.reserve(marks_.size() + 1);
    unused_.reserve(marks_.size() + 1);
    marks_.push_back({device, Event(device)});
    return static_cast<Mark>(marks_.size() - 1);
  }

  std::vector<Pooled> marks_;
  std::vector<Mark> unused_;
};

}  // namespace

std::unique_ptr<StreamOracle> make_device_oracle() { return std::make_unique<DeviceOracle>(); }

}  // namespace bantam
