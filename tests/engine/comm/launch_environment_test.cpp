// What each launcher says of a process is understood; what is half said, or contradicts itself, is an error that names
// it.
#include "bantam/engine/comm/launch_environment.h"

#include <map>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/endpoint.h"
#include "tests/engine/message_of.h"

namespace bantam::launch_environment_test {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional<std::string>(at->second);
  });
}

std::string error_of(const Variables& variables) {
  return testing::message_of([&] { read(variables); });
}

/// The usual variables with some replaced; an empty value counts as not set.
Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node1"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "123"}};
const Variables kSlurm = {{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_LOCALID", "2"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                          {"SLURM_STEP_NODELIST", "gpu[03-04]"},
                          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"},
                          {"SLURM_JOB_ID", "4711"}};

TEST(LaunchEnvironment, WithoutALauncherThereIsOneRank) {
  const LaunchEnvironment launched = read({{"MASTER_ADDR", "node1"}, {"LOCAL_RANK", "0"}, {"BANTAM_ADDRESS", "a:1"}});
  EXPECT_EQ(launched.launcher, "");
  EXPECT_EQ(launched.size, 1);
  EXPECT_EQ(launched.address, "");
  EXPECT_TRUE(launched.all_local());
}

TEST(LaunchEnvironment, Torchrun) {
  const LaunchEnvironment launched = read(kTorchrun);
  EXPECT_EQ(launched.launcher, "torchrun");
  EXPECT_EQ(launched.rank, 5);
  EXPECT_EQ(launched.size, 8);
  EXPECT_EQ(launched.local_rank, 1);
  EXPECT_EQ(launched.local_size, 4);
  EXPECT_EQ(launched.address, "node1");
  EXPECT_EQ(launched.port, 29500);
  EXPECT_FALSE(launched.all_local());
  EXPECT_TRUE(read(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}})).all_local());
}

TEST(LaunchEnvironment, AWorldOfOneIsOneRank) {
  const LaunchEnvironment launched = read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(launched.size, 1);
  EXPECT_EQ(launched.launcher, "torchrun");
  EXPECT_EQ(launched.address, "");
}

// The agent's own store listens at MASTER_PORT then.
TEST(LaunchEnvironment, TorchrunsAgentKeepsItsPort) {
  const Variables shared = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "a"}});
  const int port = read(shared).port;
  EXPECT_NE(port, 29500);
  EXPECT_EQ(read(with(shared, {{"RANK", "0"}})).port, port);
  EXPECT_NE(read(with(shared, {{"MASTER_PORT", "29501"}})).port, port);
}

TEST(LaunchEnvironment, OpenMpiOnOneHost) {
  const LaunchEnvironment launched = read(kOpenMpi);
  EXPECT_EQ(launched.launcher, "Open MPI");
  EXPECT_EQ(launched.rank, 1);
  EXPECT_EQ(launched.local_rank, 1);
  EXPECT_TRUE(launched.all_local());
  EXPECT_EQ(launched.address, "127.0.0.1");
  EXPECT_GE(launched.port, 20000);
  EXPECT_LT(launched.port, 32768);
  EXPECT_EQ(launched.port, read(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).port);
  EXPECT_NE(launched.port, read(with(kOpenMpi, {{"PMIX_NAMESPACE", "124"}})).port);
  EXPECT_EQ(read(with(kOpenMpi, {{"MASTER_PORT", "4000"}})).port, 4000);
}

TEST(LaunchEnvironment, OpenMpiOnSeveralHostsNeedsAnAddress) {
  const Variables several = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(error_of(several),
            "Open MPI started rank 1 of 2, but does not say where rank 0 is: set MASTER_ADDR to its host and "
            "MASTER_PORT to a free port there, alike for all ranks");
  EXPECT_EQ(error_of(with(several, {{"MASTER_PORT", "4000"}})),
            "environment variable MASTER_PORT is 4000, but MASTER_ADDR, rank 0's host, is not set");
  EXPECT_EQ(read(with(several, {{"MASTER_ADDR", "n"}, {"MASTER_PORT", "4000"}})).address, "n");
}

TEST(LaunchEnvironment, Pmi) {
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(read(pmi).launcher, "PMI");
  EXPECT_EQ(read(pmi).rank, 1);
  EXPECT_TRUE(read(pmi).all_local());
  EXPECT_EQ(error_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
            "PMI started rank 1 of 2, but does not say where rank 0 is: set MASTER_ADDR to its host and MASTER_PORT "
            "to a free port there, alike for all ranks");
}

TEST(LaunchEnvironment, Slurm) {
  const LaunchEnvironment launched = read(kSlurm);
  EXPECT_EQ(launched.launcher, "Slurm");
  EXPECT_EQ(launched.rank, 6);
  EXPECT_EQ(launched.size, 7);
  EXPECT_EQ(launched.local_rank, 2);
  EXPECT_EQ(launched.local_size, 3);
  EXPECT_EQ(launched.address, "gpu03");
  EXPECT_NE(launched.port, read(with(kSlurm, {{"SLURM_JOB_ID", "4712"}})).port);
  EXPECT_NE(launched.port, read(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).port);
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_NODELIST", ""}})).address, "10.0.0.9");
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", ""}})).size, 7);
  EXPECT_EQ(read(with(kSlurm, {{"MASTER_ADDR", "own"}})).address, "own");
}

// Slurm's MPI plugin pmi2 sets PMI_RANK and PMI_SIZE in every task, and no local rank.
TEST(LaunchEnvironment, SlurmWithItsPluginPmi2) {
  const Variables task = {{"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_NUM_TASKS", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2"},
                          {"SLURM_STEP_NODELIST", "node1"},
                          {"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"}};
  const LaunchEnvironment launched = read(task);
  EXPECT_EQ(launched.launcher, "Slurm");
  EXPECT_EQ(launched.rank, 1);
  EXPECT_EQ(launched.size, 2);
  EXPECT_EQ(launched.local_rank, 1);
  EXPECT_EQ(launched.local_size, 2);
  EXPECT_EQ(launched.address, "node1");
  EXPECT_EQ(read(with(task, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"PMI_RANK", "0"}})).launcher, "Slurm");
  // An mpirun of MPICH in that step starts ranks of its own.
  const Variables inner = with(task, {{"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "8"}});
  EXPECT_EQ(read(inner).launcher, "PMI");
  EXPECT_EQ(read(inner).size, 8);
  EXPECT_EQ(read(inner).local_size, 8);
  EXPECT_EQ(read(with(inner, {{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "2"}})).launcher, "PMI")
      << "another rank than the task's";
}

TEST(LaunchEnvironment, SlurmsBatchScriptsAndShellsAreOneRank) {
  const Variables batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "1"}};
  EXPECT_EQ(read(batch).size, 1);
  EXPECT_EQ(read({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}}).size, 1);
  // An interactive step's number, which Slurm uses for shells.
  EXPECT_EQ(read(with(batch, {{"SLURM_STEP_ID", "4294967290"}})).size, 1);
  EXPECT_EQ(read(with(batch, {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "a"}})).size, 4);
}

TEST(LaunchEnvironment, SpawnedByBantam) {
  const LaunchEnvironment launched = read({{"BANTAM_RANK", "0"},
                                           {"BANTAM_RANKS", "4"},
                                           {"BANTAM_ADDRESS", "[::1]:5000"},
                                           {"BANTAM_LISTENER", "7"},
                                           {"BANTAM_SECRET", "s"}});
  EXPECT_EQ(launched.launcher, "Bantam");
  EXPECT_TRUE(launched.all_local());
  EXPECT_EQ(launched.address, "::1");
  EXPECT_EQ(launched.port, 5000);
  EXPECT_EQ(launched.listener, 7);
  EXPECT_EQ(launched.secret, "s");
}

TEST(LaunchEnvironment, InnerLaunchersCount) {
  // mpirun and torchrun in a Slurm step; the address by hand goes before all.
  const Variables both = with(kSlurm, kTorchrun);
  EXPECT_EQ(read(both).launcher, "torchrun");
  EXPECT_EQ(read(with(kSlurm, kOpenMpi)).launcher, "Open MPI");
  EXPECT_EQ(read(with(both, {{"BANTAM_ADDRESS", "other:77"}})).address, "other");
  EXPECT_EQ(read(with(both, {{"BANTAM_ADDRESS", "other:77"}})).port, 77);
}

TEST(LaunchEnvironment, ErrorsNameVariableValueAndExpectation) {
  EXPECT_EQ(error_of(with(kTorchrun, {{"RANK", "8"}})),
            "environment variable RANK: expected a number below WORLD_SIZE, which is 8, not 8");
  EXPECT_EQ(error_of(with(kTorchrun, {{"WORLD_SIZE", "many"}})),
            "environment variable WORLD_SIZE: expected a whole number from 1 to 4096, not \"many\"");
  EXPECT_EQ(error_of(with(kTorchrun, {{"RANK", "-1"}})),
            "environment variable RANK: expected a whole number from 0 to 4095, not \"-1\"");
  EXPECT_EQ(error_of(with(kTorchrun, {{"WORLD_SIZE", ""}})),
            "environment variable RANK is \"5\", but WORLD_SIZE is not set: torchrun sets both; unset RANK to train on "
            "one rank");
  EXPECT_EQ(error_of(with(kTorchrun, {{"MASTER_PORT", ""}})),
            "environment variable MASTER_PORT is not set: with WORLD_SIZE 8 ranks meet at MASTER_ADDR:MASTER_PORT, "
            "which torchrun sets");
  EXPECT_EQ(error_of(with(kTorchrun, {{"MASTER_PORT", "70000"}})),
            "environment variable MASTER_PORT: expected a whole number from 1 to 65535, not \"70000\"");
  EXPECT_EQ(error_of(with(kTorchrun, {{"LOCAL_RANK", "4"}})),
            "environment variable LOCAL_RANK: expected a number below LOCAL_WORLD_SIZE, which is 4, not 4");
  EXPECT_EQ(error_of({{"BANTAM_RANK", "0"}, {"BANTAM_RANKS", "2"}}),
            "environment variable BANTAM_ADDRESS: expected HOST:PORT of rank 0, as BANTAM_RANKS is 2, but it is not "
            "set");
  EXPECT_EQ(error_of(with(kTorchrun, {{"BANTAM_ADDRESS", "::1:80"}})),
            "environment variable BANTAM_ADDRESS: expected HOST:PORT or [IPv6]:PORT with a port from 1 to 65535, not "
            "\"::1:80\"");
}

TEST(LaunchEnvironment, FirstHostOfAList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("a1,b2"), "a1");
  EXPECT_EQ(first_host("node[07-12,15]"), "node07");
  EXPECT_EQ(first_host("node[3,5-9],other1"), "node3");
  EXPECT_EQ(first_host("rack[1-2]-node[04-05].cluster"), "rack1-node04.cluster");
}

TEST(Endpoint, TextAndBack) {
  for (const char* text : {"node1:29500", "10.0.0.1:1", "[fe80::1%eth0]:65535"})
    EXPECT_EQ(to_text(parse_endpoint(text, "x")), text);
  for (const char* text : {"", "node1", ":80", "node1:", "node1:0", "node1:65536", "node1:8x", "[]:1"}) {
    EXPECT_THROW(parse_endpoint(text, "x"), ConfigError) << text;
  }
}

}  // namespace
}  // namespace bantam::launch_environment_test
