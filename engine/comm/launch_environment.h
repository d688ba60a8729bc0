// Reads how this process was launched from its environment: its rank, the number of ranks, and where rank 0 is found.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace bantam {

/// LaunchEnvironment::launcher of ranks that this program has started itself.
inline constexpr const char* kOwnLauncher = "Bantam";

/// One process of a run, as torchrun, mpirun, srun or Bantam itself started it.
struct LaunchEnvironment {
  std::string launcher;  ///< "Bantam", "torchrun", "Open MPI", "PMI" or "Slurm"; empty: none, a run of one rank
  int rank = 0, size = 1;
  int local_rank = 0;   ///< among the ranks on this host
  int local_size = 0;   ///< ranks on this host; 0: the launcher does not say
  std::string address;  ///< rank 0's host, as a name or a number; empty: one rank
  int port = 0;         ///< where rank 0 listens; 0: one rank
  std::string run;      ///< what tells this run from others on these hosts, a job's number; may be empty
  std::string secret;   ///< what only this run's ranks know; may be empty
  int listener = -1;    ///< rank 0: an inherited descriptor that listens at `port` already; -1: none

  /// Whether all ranks are known to run on this host.
  bool all_local() const { return size == local_size; }
};

/// A variable's value; none where it is not set.
using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

/// Reads, in this order, the variables of
///   Bantam:   BANTAM_RANK, BANTAM_RANKS (spawned ranks: all on one host), BANTAM_LISTENER
///   torchrun: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
///   Open MPI: OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE
///   PMI (MPICH, Intel MPI): PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS; in a Slurm step whose tasks they
///             number as Slurm does, srun's plugin pmi2 has set them, and Slurm's variables count
///   Slurm:    SLURM_PROCID and SLURM_STEP_NUM_TASKS (or SLURM_NTASKS) within a job step (srun), SLURM_LOCALID,
///             SLURM_STEP_NODELIST, SLURM_JOB_ID. A batch script or a shell in an allocation is one rank.
/// Rank 0's address is BANTAM_ADDRESS (HOST:PORT) where that is set, else MASTER_ADDR and MASTER_PORT, else what the
/// launcher lets one conclude: this host where all ranks are local, the first host of Slurm's step. BANTAM_SECRET is
/// the secret, whoever launches. Variables that are set and empty count as not set. Throws ConfigError, which names the
/// variable, its value and what was expected.
LaunchEnvironment read_launch_environment(const VariableLookup& variable);

/// Reads the variables of this process's own environment.
LaunchEnvironment read_launch_environment();

/// "node[07-12,15]" → "node07", "a1,b2" → "a1": the first host of a list as Slurm writes it.
std::string first_host(const std::string& hosts);

}  // namespace bantam
