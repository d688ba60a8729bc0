// GPUs for ranks: what --gpus says, what launchers leave to be found, and errors that say what to do.
#include "bantam/run/ranks/rank_devices.h"

#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/synchronise.h"
#include "bantam/run/ranks/rank_config.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/engine/message_of.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::rank_devices_test {
namespace {

using testing::message_of;
using testing::on_ranks;

std::string refused(const std::string& text) {
  return message_of([&] { (void)parse_gpus(text); });
}

/// Rank `local` of `of` on this host; device_of_rank asks nobody.
RunRanks local_rank(Communicator& link, int local, int of, std::vector<Device> devices = {}) {
  return {.link = &link, .local_rank = local, .local_size = of, .devices = std::move(devices)};
}

/// Stands for a run of several ranks.
class Several : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 8; }
  void exchange(std::span<const OutgoingMessage>, std::span<const IncomingMessage>) override {}
  void fail(const std::string&) noexcept override {}
};

TEST(Gpus, AreACountOrAList) {
  EXPECT_EQ(parse_gpus("3"), (std::vector{Device::cuda(0), Device::cuda(1), Device::cuda(2)}));
  EXPECT_EQ(parse_gpus("2,0"), (std::vector{Device::cuda(2), Device::cuda(0)}));
  EXPECT_EQ(parse_gpus("0,0,1"), (std::vector{Device::cuda(0), Device::cuda(0), Device::cuda(1)}));
  EXPECT_EQ(parse_gpus("0/0,0/1"), (std::vector{Device::cuda(0).logical(0), Device::cuda(0).logical(1)}));
  for (const std::string text : {"3", "2,0", "0,0,1", "0/0,0/1", "0,2"}) EXPECT_EQ(gpus_text(parse_gpus(text)), text);
  EXPECT_EQ(gpus_text(parse_gpus("0,1")), "2");
  for (const std::string text : {"", "0", "-1", "two", "1,", ",1", "1,,2", "0,x", "0/,1", "1.5", "5000", "cuda:0,1"})
    EXPECT_EQ(refused(text),
              "--gpus: expected how many, as 4, or a list of their numbers, as 0,1 (0,0: two ranks on one), got \"" +
                  text + "\"");
}

TEST(Gpus, ThatAreNotThereAreNamed) {
  EXPECT_NO_THROW(require_gpus(parse_gpus("2"), 2, ""));
  EXPECT_EQ(message_of([] { require_gpus(parse_gpus("4"), 2, ""); }),
            "--gpus: there is no GPU 2: this machine has 2 GPUs, which are numbers 0 to 1 (`bantam devices`)");
  EXPECT_EQ(message_of([] { require_gpus(parse_gpus("0,1"), 1, ""); }),
            "--gpus: there is no GPU 1: this machine has 1 GPU, which is number 0 (`bantam devices`)");
  EXPECT_EQ(message_of([] { require_gpus(parse_gpus("1"), 0, "no NVIDIA driver is installed"); }),
            "--gpus: this machine has no GPU that can be used: no NVIDIA driver is installed");
}

TEST(Gpus, AreDealtByLocalRank) {
  Several link;
  EXPECT_EQ(device_of_rank(Device::cpu(), local_rank(link, 2, 4), 0), Device::cpu());
  EXPECT_EQ(device_of_rank(Device::cuda(0), local_rank(link, 2, 4), 4), Device::cuda(2));
  EXPECT_EQ(device_of_rank(Device::cuda(3), local_rank(link, 0, 1), 4), Device::cuda(3)) << "alone on its host";
  EXPECT_EQ(device_of_rank(Device::cuda(3), {}, 4), Device::cuda(3)) << "one rank";
  EXPECT_EQ(device_of_rank(Device::cuda(0), local_rank(link, 1, 2), 1), Device::cuda(0)) << "each may see its own";
  EXPECT_EQ(device_of_rank(Device::cuda(0), local_rank(link, 3, 0), 4), Device::cuda(3)) << "of so many, not known";
  EXPECT_EQ(device_of_rank(Device::cuda(0), local_rank(link, 1, 2, parse_gpus("3,1")), 4), Device::cuda(1));
}

TEST(Gpus, AreRefusedWhereTheyDoNotSuffice) {
  Several link;
  const auto refused = [&](Device device, const RunRanks& ranks, int gpus) {
    return message_of([&] { (void)device_of_rank(device, ranks, gpus); });
  };
  EXPECT_EQ(
      refused(Device::cuda(0), local_rank(link, 0, 4), 2),
      "4 ranks on this host, which has 2 GPUs: start as many ranks as GPUs, or have ranks share them: --gpus with "
      "a number for each, as 0,0");
  EXPECT_EQ(refused(Device::cuda(2), local_rank(link, 1, 2), 4),
            "device: cuda:2 is one, but 2 ranks of this host need a GPU each: say device: cuda, or --gpus with the "
            "number of each rank's");
  EXPECT_EQ(refused(Device::cuda(0), local_rank(link, 1, 2, parse_gpus("3")), 4),
            "--gpus: 3 GPUs for the 2 ranks on this host: name one for each");
}

TEST(Gpus, BelongToOneRankEach) {
  const auto errors = [](const std::vector<std::string>& identities, const std::vector<Device>& devices) {
    std::vector<std::string> messages(identities.size());
    EXPECT_EQ(on_ranks(static_cast<int>(identities.size()),
                       [&](Communicator& link, int number) {
                         const auto rank = static_cast<std::size_t>(number);
                         messages[rank] = message_of(
                             [&] { require_own_gpus({.link = &link, .devices = devices}, identities[rank]); });
                       }),
              testing::nothing_thrown(static_cast<int>(identities.size())));
    return messages;
  };
  const std::string none = "nothing was thrown";
  EXPECT_EQ(errors({"GPU-a", "GPU-b", ""}, {}), (std::vector{none, none, none}));
  EXPECT_EQ(errors({"GPU-a", "GPU-a"}, parse_gpus("0,0")), (std::vector{none, none})) << "asked for";
  for (const std::string& error : errors({"GPU-a", "GPU-b", "GPU-a"}, {}))
    EXPECT_EQ(
        error,
        "ranks 0 and 2 have one GPU (GPU-a): start one rank a GPU, or have them share it: --gpus with a number for "
        "each rank of a host, as 0,0");
}

class RanksOnGpus : public RunTest {};

TEST_F(RanksOnGpus, NeedAReplicaEach) {
  EXPECT_NO_THROW(require_ranks(tiny({"device=cuda", "train.replicas=4"}), 3));
  EXPECT_EQ(
      message_of([] { require_ranks(tiny({"device=cuda"}), 3); }),
      "3 GPUs need as many replicas or more, but train.replicas is 1: each GPU computes whole replicas, of a batch "
      "each; add train.replicas=4 (a power of two), which makes an update of 4 batches");
}

TEST_F(RanksOnGpus, NeedOneReplicaEachForSynchronisedNorms) {
  const RunConfig config = tiny({"device=cuda", "train.replicas=4", "train.sync_batch_norm=true"});
  EXPECT_TRUE(has_synchronised_norms(config.model.graph));
  EXPECT_NO_THROW(require_ranks(config, 4));
  EXPECT_EQ(message_of([&] { require_ranks(config, 1); }),
            "train.sync_batch_norm: batch norms of replicas exchange sums while these run side by side, each on a rank "
            "of its own: train.replicas is 4, but there is 1 rank; start 4 ranks (--gpus 4 or --ranks 4), or set "
            "train.replicas=1");
  EXPECT_EQ(message_of([&] { require_ranks(config, 3); }),
            "train.sync_batch_norm: batch norms of replicas exchange sums while these run side by side, each on a rank "
            "of its own: train.replicas is 4, but there are 3 ranks; start 4 ranks (--gpus 4 or --ranks 4)");
  EXPECT_NE(message_of([&] { require_ranks(config, 5); }).find("5 GPUs need as many replicas"), std::string::npos);
}

TEST_F(RanksOnGpus, HaveTheirOwnLimits) {
  const auto limits_on = [](const std::string& limits, int rank) {
    RunConfig config = tiny({"device=cuda", "train.replicas=4", "memory.limits=" + limits});
    config.device = Device::cuda(rank);
    return config_of_rank(config, rank, {1, 1, 2}).memory.limits;
  };
  using Limits = std::map<std::string, std::uint64_t>;
  EXPECT_EQ(limits_on("{cuda: [1KiB, 2KiB, 3KiB]}", 2), (Limits{{"cuda:2", 3072}})) << "an entry a rank";
  EXPECT_EQ(limits_on("{cuda: 1KiB, cpu: 4KiB}", 1), (Limits{{"cpu", 4096}, {"cuda:1", 1024}})) << "one for all";
  EXPECT_EQ(limits_on("{cuda: 1KiB, cuda:1: 2KiB}", 1), (Limits{{"cuda:1", 2048}})) << "by number";
  EXPECT_EQ(limits_on("{cuda: 1KiB, cuda:1: 2KiB}", 0), (Limits{{"cuda:0", 1024}}));
  EXPECT_EQ(limits_on("{cuda:1: 2KiB}", 0), (Limits{}));
}

}  // namespace
}  // namespace bantam::run::rank_devices_test
