// A reader for each launcher's variables; the first whose ranks are there counts.
#include "bantam/engine/comm/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/comm/endpoint.h"

namespace bantam {
namespace {

constexpr int kMostRanks = 4096;

/// The variables of one process, read as numbers with errors that name them.
class Variables {
 public:
  explicit Variables(const VariableLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const {
    auto value = lookup_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(const char* name) const { return text(name).has_value(); }

  std::optional<int> number(const char* name, int least, int most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (error != std::errc() || end != value->data() + value->size() || number < least || number > most)
      throw ConfigError(fmt::format("environment variable {}: expected a whole number from {} to {}, not \"{}\"", name,
                                    least, most, shown(*value)));
    return number;
  }

 private:
  const VariableLookup& lookup_;
};

/// The variables of one launcher that say which of how many ranks this is.
struct Names {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kBantam = {kOwnLauncher, "BANTAM_RANK", "BANTAM_RANKS", nullptr, nullptr};
constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                            "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

[[noreturn]] void throw_not_below(const char* number, int value, const char* count, int size) {
  throw ConfigError(fmt::format("environment variable {}: expected a number below {}, which is {}, not {}", number,
                                count, size, value));
}

/// The local rank and number of ranks, where the launcher says them.
void read_local(const Variables& variables, const Names& names, LaunchEnvironment& launched) {
  if (names.local_size)
    launched.local_size = variables.number(names.local_size, 1, launched.size).value_or(launched.local_size);
  if (names.local_rank) launched.local_rank = variables.number(names.local_rank, 0, kMostRanks - 1).value_or(0);
  if (launched.local_size > 0 && launched.local_rank >= launched.local_size)
    throw_not_below(names.local_rank, launched.local_rank, names.local_size, launched.local_size);
}

/// Whether `names`' launcher has started this process: rank and size are set. One without the other is an error.
bool read_ranks(const Variables& variables, const Names& names, LaunchEnvironment& launched) {
  const auto size = variables.number(names.size, 1, kMostRanks);
  const auto rank = variables.number(names.rank, 0, kMostRanks - 1);
  if (!rank && !size) return false;
  if (!rank || !size) {
    const char* set = rank ? names.rank : names.size;
    throw ConfigError(
        fmt::format("environment variable {} is \"{}\", but {} is not set: {} sets both; unset {} to "
                    "train on one rank",
                    set, rank ? *rank : *size, rank ? names.size : names.rank, names.launcher, set));
  }
  if (*rank >= *size) throw_not_below(names.rank, *rank, names.size, *size);
  launched.launcher = names.launcher;
  launched.rank = *rank;
  launched.size = *size;
  read_local(variables, names, launched);
  return true;
}

/// FNV-1a: the same number of a text on every host.
std::uint64_t number_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

/// A port for a run that nobody chose one for: between the registered ports and those that systems lend out.
int port_of(std::string_view run) { return 20000 + static_cast<int>(number_of(run) % 12000); }

bool read_bantam(const Variables& variables, LaunchEnvironment& launched) {
  if (!read_ranks(variables, kBantam, launched)) return false;
  launched.local_rank = launched.rank;
  launched.local_size = launched.size;
  if (launched.rank == 0)
    launched.listener = variables.number("BANTAM_LISTENER", 0, std::numeric_limits<int>::max()).value_or(-1);
  if (launched.size > 1 && !variables.has("BANTAM_ADDRESS"))
    throw ConfigError(
        fmt::format("environment variable BANTAM_ADDRESS: expected HOST:PORT of rank 0, as BANTAM_RANKS "
                    "is {}, but it is not set",
                    launched.size));
  return true;
}

/// torchrun's agent may listen at MASTER_PORT itself: then the ranks meet at a port that they all derive from it.
bool read_torchrun(const Variables& variables, LaunchEnvironment& launched) {
  if (!read_ranks(variables, kTorchrun, launched)) return false;
  launched.run = variables.text("TORCHELASTIC_RUN_ID").value_or("");
  if (variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
    launched.port = port_of(launched.run + "/" + variables.text("MASTER_PORT").value_or(""));
  return true;
}

bool read_open_mpi(const Variables& variables, LaunchEnvironment& launched) {
  if (!read_ranks(variables, kOpenMpi, launched)) return false;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"}) {
    if (launched.run.empty()) launched.run = variables.text(name).value_or("");
  }
  return true;
}

/// Whether this process was started by srun. A batch script and a shell in an allocation have a job's variables, too,
/// but belong to no step, or to one of the steps that Slurm makes for them (numbers from 2^32 - 16 on).
bool in_slurm_step(const Variables& variables) {
  if (!variables.has("SLURM_PROCID")) return false;
  const auto step = variables.text("SLURM_STEP_ID");
  if (!step) return variables.has("SLURM_STEP_NODELIST") || variables.has("SLURM_STEP_NUM_TASKS");
  std::uint64_t number = 0;
  std::from_chars(step->data(), step->data() + step->size(), number);
  return number < 0xfffffff0u;
}

/// Whether srun itself has set PMI's variables, as its plugin pmi2 does for every task. They then say what Slurm's say,
/// and no local rank. An mpirun within a step has ranks of its own.
bool is_pmi_of_slurm(const Variables& variables) {
  return in_slurm_step(variables) && variables.has("PMI_RANK") &&
         variables.text("PMI_RANK") == variables.text("SLURM_PROCID") &&
         variables.text("PMI_SIZE") == variables.text("SLURM_STEP_NUM_TASKS");
}

bool read_pmi(const Variables& variables, LaunchEnvironment& launched) {
  if (is_pmi_of_slurm(variables)) return false;
  if (!read_ranks(variables, kPmi, launched)) return false;
  for (const char* name : {"PMI_JOBID", "SLURM_JOB_ID"}) {
    if (launched.run.empty()) launched.run = variables.text(name).value_or("");
  }
  return true;
}

/// "4(x2),3" with index 2 → 3: Slurm's number of tasks on a node; 0 where it cannot be read.
int tasks_of_node(std::string_view counts, int node) {
  while (!counts.empty()) {
    const std::string_view item = counts.substr(0, counts.find(','));
    counts.remove_prefix(std::min(item.size() + 1, counts.size()));
    int tasks = 0, times = 1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), tasks);
    const std::string_view rest = item.substr(static_cast<std::size_t>(end - item.data()));
    if (error != std::errc()) return 0;
    if (rest.starts_with("(x")) std::from_chars(rest.data() + 2, rest.data() + rest.size(), times);
    if (node < times) return tasks;
    node -= times;
  }
  return 0;
}

bool read_slurm(const Variables& variables, LaunchEnvironment& launched) {
  if (!in_slurm_step(variables)) return false;
  const char* size = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const Names names = {"Slurm", "SLURM_PROCID", size, "SLURM_LOCALID", nullptr};
  read_ranks(variables, names, launched);
  const auto tasks = variables.text("SLURM_STEP_TASKS_PER_NODE");
  const auto node = variables.number("SLURM_NODEID", 0, kMostRanks);
  if (tasks && node) {
    launched.local_size = tasks_of_node(*tasks, *node);
  } else {
    launched.local_size = variables.number("SLURM_NTASKS_PER_NODE", 1, kMostRanks).value_or(0);
  }
  if (launched.local_size > launched.size || launched.local_rank >= launched.local_size) launched.local_size = 0;
  launched.run = fmt::format("slurm {}.{}", variables.text("SLURM_JOB_ID").value_or(""),
                             variables.text("SLURM_STEP_ID").value_or(""));
  if (const auto hosts = variables.text("SLURM_STEP_NODELIST")) {
    launched.address = first_host(*hosts);
  } else {
    launched.address = variables.text("SLURM_LAUNCH_NODE_IPADDR").value_or("");
  }
  return true;
}

/// MASTER_ADDR and MASTER_PORT, which are torchrun's, and are often set by hand for other launchers.
void read_master(const Variables& variables, LaunchEnvironment& launched) {
  const auto address = variables.text("MASTER_ADDR");
  const auto port = variables.number("MASTER_PORT", 1, 65535);
  if (address) launched.address = *address;
  if (port && launched.port == 0) launched.port = *port;
  if (launched.launcher == kTorchrun.launcher) {
    for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
      if (!variables.has(name))
        throw ConfigError(
            fmt::format("environment variable {} is not set: with WORLD_SIZE {} ranks meet at "
                        "MASTER_ADDR:MASTER_PORT, which torchrun sets",
                        name, launched.size));
    }
  } else if (port && launched.address.empty() && !launched.all_local()) {
    throw ConfigError(
        fmt::format("environment variable MASTER_PORT is {}, but MASTER_ADDR, rank 0's host, is not set", *port));
  }
}

/// Where rank 0 is to be found, for a run of several ranks.
void read_address(const Variables& variables, LaunchEnvironment& launched) {
  if (const auto address = variables.text("BANTAM_ADDRESS")) {
    const Endpoint endpoint = parse_endpoint(*address, "environment variable BANTAM_ADDRESS");
    launched.address = endpoint.host;
    launched.port = endpoint.port;
    return;
  }
  read_master(variables, launched);
  if (launched.address.empty() && launched.all_local()) launched.address = "127.0.0.1";
  if (launched.address.empty())
    throw ConfigError(
        fmt::format("{} started rank {} of {}, but does not say where rank 0 is: set MASTER_ADDR to its "
                    "host and MASTER_PORT to a free port there, alike for all ranks",
                    launched.launcher, launched.rank, launched.size));
  if (launched.port == 0) launched.port = port_of(launched.run);
}

}  // namespace

std::string first_host(const std::string& hosts) {
  const std::size_t open = hosts.find_first_of("[,");
  if (open == std::string::npos || hosts[open] == ',') return hosts.substr(0, open);
  const std::size_t end = hosts.find_first_of("-,]", open);
  if (end == std::string::npos) return hosts;
  std::string host = hosts.substr(0, open) + hosts.substr(open + 1, end - open - 1);
  // The text after the brackets belongs to each host's name; it may have brackets of its own.
  const std::size_t close = hosts.find(']', open);
  if (close != std::string::npos) {
    const std::string rest = hosts.substr(close + 1);
    if (!rest.empty() && rest[0] != ',') host += first_host(rest);
  }
  return host;
}

LaunchEnvironment read_launch_environment(const VariableLookup& variable) {
  const Variables variables(variable);
  LaunchEnvironment launched;
  for (const auto& read : {read_bantam, read_torchrun, read_open_mpi, read_pmi, read_slurm}) {
    if (read(variables, launched)) break;
  }
  if (launched.size == 1) {
    launched.address.clear();
    launched.local_rank = 0;
    launched.local_size = 1;
    launched.port = 0;
    return launched;
  }
  read_address(variables, launched);
  launched.secret = variables.text("BANTAM_SECRET").value_or("");
  return launched;
}

LaunchEnvironment read_launch_environment() {
  return read_launch_environment([](const char* name) -> std::optional<std::string> {
    const char* const value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace bantam
