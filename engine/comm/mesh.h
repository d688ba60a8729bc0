// Mesh: a Communicator over a Network: frames, failures that all ranks hear of, a limit to silence.
#pragma once

#include <memory>
#include <optional>

#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/network.h"

namespace bantam {

struct MeshOptions {
  /// A rank of which no byte has come for so long, while this rank waits for it, has failed. A rank that waits in a
  /// call tells the others that it lives; one that computes does not (that is for a watch beside the mesh to see).
  /// 0: no limit.
  double silence_seconds = 30;
  /// How long fail() and the destructor wait for others to accept what they are told.
  double farewell_seconds = 2;
};

/// Messages of any size in both directions at once, without copies of their own; the sizes that two ranks expect are
/// compared. A stream that ends without a goodbye is a rank that died. The first failure that a rank hears of is told
/// to all, and is what each call throws from then on.
class Mesh final : public Communicator {
 public:
  explicit Mesh(std::unique_ptr<Network> network, MeshOptions options = {});
  /// Says goodbye (unless a failure was heard of) and closes the streams.
  ~Mesh() override;
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int rank() const override;
  int size() const override;
  void exchange(std::span<const OutgoingMessage> out, std::span<const IncomingMessage> in) override;
  void fail(const std::string& reason) noexcept override;
  /// As fail(), of a failure that was found in another rank. Any thread.
  void fail(const RankFailure& failure) noexcept;
  /// The failure that ends the run, once this rank knows of one. Any thread.
  std::optional<RankFailure> failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
