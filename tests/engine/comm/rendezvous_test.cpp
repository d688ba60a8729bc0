// Processes find each other, or all of them say why not.
#include "bantam/engine/comm/rendezvous.h"

#include "bantam/engine/comm/handshake.h"
#include "tests/engine/comm/rank_processes.h"

namespace bantam::rendezvous_test {
namespace {

using testing::Environment;
using testing::LocalRun;
using testing::RankProcess;
using testing::this_host;

/// A port that was free a moment ago.
int free_port(const char* host) {
  std::string why;
  const auto addresses = resolve({host, 0}, why);
  return addresses.empty() ? 0 : own_address(listen_at(addresses.front(), why)).port();
}

/// torchrun's variables, which do not say that all ranks are local.
Environment torchrun(int rank, int size, const std::string& host, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", host},
          {"MASTER_PORT", std::to_string(port)}};
}

void expect_output(RankProcess& process, const std::string& expected) { EXPECT_EQ(process.output(), expected); }

TEST(Rendezvous, FourProcessesMeetAndExchange) {
  LocalRun run(4);
  for (RankProcess& process : run.start_all({"ring"})) expect_output(process, "ready\ndone\nclean\n");
}

TEST(Rendezvous, RankZeroMayComeLast) {
  LocalRun run(3);
  std::vector<RankProcess> processes;
  for (const int rank : {2, 1, 0}) processes.push_back(run.start(rank, {"ring"}, {{"BANTAM_SECRET", "abc"}}));
  for (RankProcess& process : processes) expect_output(process, "ready\ndone\nclean\n");
}

// Nothing listens at the port at first, and no host is said to be the only one.
TEST(Rendezvous, OthersTryAgainUntilRankZeroListens) {
  const int port = free_port("127.0.0.1");
  RankProcess first({"ring"}, torchrun(1, 3, "127.0.0.1", port)), second({"ring"}, torchrun(2, 3, "127.0.0.1", port));
  EXPECT_FALSE(first.prints("ready", 0.3));
  RankProcess zero({"ring"}, torchrun(0, 3, "127.0.0.1", port));
  for (RankProcess* process : {&zero, &first, &second}) expect_output(*process, "ready\ndone\nclean\n");
}

TEST(Rendezvous, ByThisHostsNameAtEveryInterface) {
  std::string why;
  if (resolve({this_host(), 0}, why).empty()) GTEST_SKIP() << "this host's name has no address: " << why;
  const int port = free_port("127.0.0.1");
  RankProcess zero({"ring"}, torchrun(0, 2, this_host(), port)), one({"ring"}, torchrun(1, 2, this_host(), port));
  for (RankProcess* process : {&zero, &one}) expect_output(*process, "ready\ndone\nclean\n");
}

TEST(Rendezvous, OverIpv6) {
  const int port = free_port("::1");
  if (port == 0) GTEST_SKIP() << "no IPv6 loopback interface";
  RankProcess zero({"ring"}, torchrun(0, 2, "::1", port)), one({"ring"}, torchrun(1, 2, "::1", port));
  for (RankProcess* process : {&zero, &one}) expect_output(*process, "ready\ndone\nclean\n");
}

TEST(Rendezvous, MissingRanksAreNamedByAllThatHaveCome) {
  LocalRun run(4);
  const std::string expected = "failed 0 " + this_host() + ": ranks 1 and 3 of 4 did not connect to rank 0 on " +
                               this_host() + " at " + run.address() + " within 500ms\nclean\n";
  RankProcess zero = run.start(0, {"ring", "--connect", "0.5"}), two = run.start(2, {"ring", "--connect", "0.5"});
  expect_output(zero, expected);
  expect_output(two, expected);
}

TEST(Rendezvous, AMissingRankZeroIsNamedWithItsAddress) {
  const int port = free_port("127.0.0.1");
  RankProcess one({"ring", "--connect", "0.3"}, torchrun(1, 2, "localhost", port));
  expect_output(one, "failed 1 " + this_host() + ": rank 1 on " + this_host() +
                         " could not connect to rank 0 at localhost:" + std::to_string(port) +
                         " within 300ms: Connection refused\nclean\n");
}

TEST(Rendezvous, AnUnknownHostIsNamed) {
  RankProcess one({"ring", "--connect", "0.1"}, torchrun(1, 2, "no-such-host.invalid", 4000));
  EXPECT_TRUE(one.output().starts_with("failed 1 " + this_host() + ": rank 1 on " + this_host() +
                                       " could not connect to rank 0 at no-such-host.invalid:4000 within 100ms: "))
      << one.output();
}

TEST(Rendezvous, AWrongSecretIsRefusedAndDisturbsNobody) {
  LocalRun run(2);
  RankProcess stranger = run.start(1, {"ring"}, {{"BANTAM_SECRET", "wrong"}});
  RankProcess zero = run.start(0, {"ring"}, {{"BANTAM_SECRET", "right"}});
  expect_output(stranger, "failed 1 " + this_host() + ": rank 0 at " + run.address() + " refused rank 1 on " +
                              this_host() + ": wrong secret\nclean\n");
  RankProcess one = run.start(1, {"ring"}, {{"BANTAM_SECRET", "right"}});
  expect_output(one, "ready\ndone\nclean\n");
  expect_output(zero, "ready\ndone\nclean\n");
}

TEST(Rendezvous, VisitorsWhoSayNothingOrNonsenseDisturbNobody) {
  LocalRun run(2);
  RankProcess zero = run.start(0, {"ring"});
  std::string why;
  const auto addresses = resolve({"127.0.0.1", run.port()}, why);
  const FileDescriptor silent = connect_to(addresses.at(0), 5, {}, why);
  const FileDescriptor nonsense = connect_to(addresses.at(0), 5, {}, why);
  ASSERT_TRUE(silent && nonsense) << why;
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  EXPECT_EQ(::send(nonsense.get(), request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
  RankProcess one = run.start(1, {"ring"});
  expect_output(one, "ready\ndone\nclean\n");
  expect_output(zero, "ready\ndone\nclean\n");
}

TEST(Rendezvous, TwoOfOneRankAreAnErrorOfAll) {
  LocalRun run(3);
  std::vector<RankProcess> processes;
  for (const int rank : {0, 1, 1}) processes.push_back(run.start(rank, {"ring"}));
  for (RankProcess& process : processes)
    expect_output(process, "failed 1 " + this_host() + ": two processes say that they are rank 1: one on " +
                               this_host() + " (127.0.0.1), one on " + this_host() + " (127.0.0.1)\nclean\n");
}

TEST(Rendezvous, AnotherSizeOrVersionNamesBoth) {
  LocalRun sizes(2);
  RankProcess zero = sizes.start(0, {"ring"}), other = sizes.start(2, {"ring"}, {{"BANTAM_RANKS", "3"}});
  for (RankProcess* process : {&zero, &other})
    expect_output(*process, "failed 2 " + this_host() + ": rank 2 on " + this_host() +
                                " (127.0.0.1) was started as one of 3 ranks, rank 0 on " + this_host() +
                                " as one of 2\nclean\n");
  LocalRun versions(2);
  RankProcess old = versions.start(1, {"ring", "--version", "1.0"});
  RankProcess newer = versions.start(0, {"ring", "--version", "1.1"});
  for (RankProcess* process : {&old, &newer})
    expect_output(*process, "failed 1 " + this_host() + ": rank 1 on " + this_host() +
                                " (127.0.0.1) runs Bantam \"1.0\", rank 0 on " + this_host() +
                                " runs \"1.1\": all ranks need the same version\nclean\n");
}

// Found by the port alone, as where two jobs chose the same one.
TEST(Rendezvous, RanksOfAnotherRunAreTurnedAway) {
  const int port = free_port("127.0.0.1");
  const auto of_run = [&](int rank, const std::string& run) {
    Environment environment = torchrun(rank, 2, "127.0.0.1", port);
    environment["TORCHELASTIC_RUN_ID"] = run;
    return environment;
  };
  RankProcess zero({"ring"}, of_run(0, "a")), other({"ring"}, of_run(1, "b"));
  expect_output(other, "failed 1 " + this_host() + ": rank 0 at 127.0.0.1:" + std::to_string(port) +
                           " refused rank 1 on " + this_host() +
                           ": a rank of the run \"b\" came to the run \"a\"\nclean\n");
  RankProcess one({"ring"}, of_run(1, "a"));
  expect_output(one, "ready\ndone\nclean\n");
  expect_output(zero, "ready\ndone\nclean\n");
}

TEST(Rendezvous, APortThatIsTakenIsAnErrorOfRankZero) {
  std::string why;
  const FileDescriptor taken = listen_at(resolve({"127.0.0.1", 0}, why).at(0), why);
  const int port = own_address(taken).port();
  RankProcess zero({"ring"}, torchrun(0, 2, "127.0.0.1", port));
  expect_output(zero, "failed 0 " + this_host() + ": rank 0 on " + this_host() +
                          " cannot listen at 127.0.0.1:" + std::to_string(port) +
                          ": Address already in use; another port can be chosen with MASTER_PORT\nclean\n");
}

TEST(Rendezvous, ARankThatDiesMeanwhileEndsTheOthers) {
  LocalRun run(3);
  RankProcess zero = run.start(0, {"ring"}), one = run.start(1, {"ring"});
  EXPECT_FALSE(one.prints("ready", 0.3));
  one.signal(SIGKILL);
  const std::string host = this_host();
  // Killed before it came, it is missing; rank 0 knew it for 0.3 s on any machine but a very slow one.
  EXPECT_EQ(zero.output(),
            "failed 1 " + host + ": rank 1 on " + host + " went away while ranks were being connected\nclean\n");
}

TEST(Rendezvous, NamesOfRanks) {
  EXPECT_EQ(names_of_ranks({2}), "rank 2");
  EXPECT_EQ(names_of_ranks({2, 3}), "ranks 2 and 3");
  EXPECT_EQ(names_of_ranks({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
}

TEST(Handshake, AProofHoldsForItsSecretContextAndMessage) {
  const handshake::Json message = {{"rank", 1}};
  const std::string frame = handshake::sealed("secret", "hello 1", message);
  EXPECT_EQ(handshake::unsealed("secret", "hello 1", frame), message);
  EXPECT_FALSE(handshake::unsealed("Secret", "hello 1", frame));
  EXPECT_FALSE(handshake::unsealed("secret", "hello 2", frame));
  for (std::size_t i = 0; i < frame.size(); ++i) {
    std::string other = frame;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(handshake::unsealed("secret", "hello 1", other)) << "byte " << i;
    EXPECT_FALSE(handshake::unsealed("secret", "hello 1", frame.substr(0, i)));
  }
  EXPECT_NE(handshake::random_number(), handshake::random_number());
}

}  // namespace
}  // namespace bantam::rendezvous_test
