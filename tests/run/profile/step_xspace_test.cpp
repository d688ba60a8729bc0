// An XSpace, read again field by field: planes, lines, events at their times, and stats by name.
#include "bantam/run/profile/step_xspace.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/protobuf.h"
#include "bantam/run/train/run_lock.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::step_xspace_test {
namespace {

using kernels::KernelPhase;

// What a reader of xplane.proto has of a plane.
struct ReadEvent {
  std::string name;
  std::int64_t begin_ps = 0, duration_ps = 0;
  std::map<std::string, std::string> stats;
};
struct ReadLine {
  std::string name;
  std::int64_t timestamp_ns = 0;
  std::vector<ReadEvent> events;
};
struct ReadPlane {
  std::string name;
  std::vector<ReadLine> lines;
};

std::vector<ProtoField> fields_of(std::string_view message, std::uint32_t number = 0) {
  std::vector<ProtoField> fields;
  ProtoReader reader(message);
  while (const std::optional<ProtoField> field = reader.next()) {
    if (number == 0 || field->number == number) fields.push_back(*field);
  }
  return fields;
}
std::int64_t integer(std::string_view message, std::uint32_t number) {
  const std::vector<ProtoField> fields = fields_of(message, number);
  return fields.empty() ? 0 : fields.back().as_integer();
}
std::string text(std::string_view message, std::uint32_t number) {
  const std::vector<ProtoField> fields = fields_of(message, number);
  return fields.empty() ? "" : std::string(fields.back().as_bytes());
}

/// A map of numbers to messages whose field 2 is a name.
std::map<std::int64_t, std::string> names_of(std::string_view plane, std::uint32_t number) {
  std::map<std::int64_t, std::string> names;
  for (const ProtoField& entry : fields_of(plane, number)) {
    const std::string kind = text(entry.as_bytes(), 2);
    EXPECT_EQ(integer(entry.as_bytes(), 1), integer(kind, 1));
    names[integer(entry.as_bytes(), 1)] = text(kind, 2);
  }
  return names;
}

ReadPlane plane_of(std::string_view message) {
  const std::map<std::int64_t, std::string> events = names_of(message, 4), stats = names_of(message, 5);
  ReadPlane plane{.name = text(message, 2)};
  for (const ProtoField& line : fields_of(message, 3)) {
    plane.lines.push_back({.name = text(line.as_bytes(), 2), .timestamp_ns = integer(line.as_bytes(), 3)});
    for (const ProtoField& field : fields_of(line.as_bytes(), 4)) {
      const std::string_view event = field.as_bytes();
      ReadEvent read{events.at(integer(event, 1)), integer(event, 2), integer(event, 3), {}};
      for (const ProtoField& stat : fields_of(event, 4)) {
        const std::string value = text(stat.as_bytes(), 5);
        read.stats[stats.at(integer(stat.as_bytes(), 1))] =
            value.empty() ? fmt::format("{}", integer(stat.as_bytes(), 4)) : value;
      }
      plane.lines.back().events.push_back(std::move(read));
    }
  }
  return plane;
}

std::vector<ReadPlane> planes_of(const std::string& space) {
  std::vector<ReadPlane> planes;
  for (const ProtoField& plane : fields_of(space, 1)) planes.push_back(plane_of(plane.as_bytes()));
  return planes;
}

StepProfile made_profile(Device device) {
  StepRecording recording{.method = device.is_cuda() ? RecordingMethod::driver_trace : RecordingMethod::host_clock};
  for (const std::int64_t at : {0, 1000}) {
    recording.updates.push_back({.begin_ns = at, .end_ns = at + 1000});
    recording.updates.back().slices = {
        {.owner = "stem/conv", .kernel = "conv2d_forward", .begin_ns = at, .end_ns = at + 400},
        {.owner = "stem/conv",
         .phase = KernelPhase::backward,
         .kernel = "conv2d_backward",
         .begin_ns = at + 500,
         .end_ns = at + 900},
        {.kernel = "fill", .device_kernel = "memset", .begin_ns = at + 900, .end_ns = at + 950},
        {.kernel = "nothing", .begin_ns = at + 950, .end_ns = at + 950}};
    recording.updates.back().slices[0].work = {.bytes = 4096, .flops = 1 << 20};
    if (device.is_cuda())
      recording.updates.back().slices[0].device_kernel = "void bantam::(anonymous namespace)::wide<4>(int)";
  }
  if (device.is_cpu()) recording.threads = {{.thread = 1, .begin_ns = 0, .end_ns = 300}};
  StepProfile profile = summarize({}, std::move(recording));
  profile.device = device;
  profile.options = {.first_step = 3, .last_step = 4};
  return profile;
}

TEST(StepXSpace, OnAGpuKernelsStandInAPlaneOfTheirOwn) {
  const std::string space = step_xspace(made_profile(Device::cuda(1)), {.host = "box", .begin_ns = 7000});
  EXPECT_EQ(text(space, 4), "box");
  const std::vector<ReadPlane> planes = planes_of(space);
  ASSERT_EQ(planes.size(), 2u);
  EXPECT_EQ(planes[0].name, "/device:GPU:1");
  ASSERT_EQ(planes[0].lines.size(), 1u);
  const ReadLine& line = planes[0].lines[0];
  EXPECT_EQ(line.timestamp_ns, 7000);
  ASSERT_EQ(line.events.size(), 6u) << "what took no time is left out";
  EXPECT_EQ(line.events[0].name, "wide<4>");
  EXPECT_EQ(line.events[0].stats.at("tf_op"), "stem/conv:conv2d_forward");
  EXPECT_EQ(line.events[0].stats.at("flops"), "1048576");
  EXPECT_EQ(line.events[0].stats.at("bytes_accessed"), "4096");
  EXPECT_EQ(line.events[1].stats.at("phase"), "backward");
  EXPECT_EQ(line.events[2].name, "memset");
  EXPECT_FALSE(line.events[2].stats.contains("tf_op"));
  EXPECT_FALSE(line.events[2].stats.contains("kernel_details")) << "a copy is no kernel";
  EXPECT_EQ(line.events[4].begin_ps, 1'500'000);
  EXPECT_EQ(line.events[4].duration_ps, 400'000);
  EXPECT_EQ(line.events[4].stats.at("group_id"), "1") << "of the second step";
}

TEST(StepXSpace, StepsAreRootsWithTheirNumbers) {
  for (const Device device : {Device::cpu(), Device::cuda(0)}) {
    const ReadPlane host = planes_of(step_xspace(made_profile(device), {})).back();
    EXPECT_EQ(host.name, "/host:CPU");
    std::vector<std::string> numbers;
    for (const ReadEvent& event : host.lines[0].events) {
      if (event.name != "step") continue;
      EXPECT_EQ(event.stats.at("_r"), "1");
      EXPECT_EQ(event.duration_ps, 1'000'000);
      numbers.push_back(event.stats.at("step_num"));
    }
    EXPECT_EQ(numbers, (std::vector<std::string>{"3", "4"}));
  }
}

TEST(StepXSpace, OnTheCpuKernelsLieWithinPhasesWithinSteps) {
  const std::vector<ReadPlane> planes = planes_of(step_xspace(made_profile(Device::cpu()), {}));
  ASSERT_EQ(planes.size(), 1u);
  std::vector<std::string> names;
  for (const ReadEvent& event : planes[0].lines[0].events) {
    if (event.begin_ps < 1'000'000) names.push_back(event.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"step", "forward", "stem/conv:conv2d_forward", "backward",
                                             "stem/conv:conv2d_backward", "forward", "fill"}));
  ASSERT_EQ(planes[0].lines.size(), 3u) << "and a line a thread";
  EXPECT_EQ(planes[0].lines[2].name, "worker 1");
  ASSERT_EQ(planes[0].lines[2].events.size(), 1u);
  EXPECT_EQ(planes[0].lines[2].events[0].duration_ps, 300'000);
}

using StepXSpaceFile = RunTest;

TEST_F(StepXSpaceFile, IsWrittenWhereThePluginLooks) {
  const std::filesystem::path file = write_step_xspace(made_profile(Device::cpu()), path("logs"));
  EXPECT_EQ(file.parent_path().parent_path(), path("logs") / "plugins" / "profile");
  EXPECT_EQ(file.parent_path().filename().string().size(), std::string("2026_01_02_03_04_05").size());
  EXPECT_EQ(file.filename(), host_name() + ".xplane.pb");
  EXPECT_EQ(planes_of(read_file(file)).size(), 1u);
}

}  // namespace
}  // namespace bantam::run::step_xspace_test
