// Whatever started the process: its place comes out, or a refusal that names the variables.

#include "parallel/rendezvous/place.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "parallel/rendezvous/node_list.h"
#include "parallel/rendezvous/node_place.h"

namespace megatrain::parallel {
namespace {

/// Environments as each launcher makes them.
Environment torchrun() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"GROUP_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "2"},
          {"TORCHELASTIC_RUN_ID", "abc"}};
}

Environment slurm() {
  return {{"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_PROCID", "5"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "8"},
          {"SLURM_STEP_NUM_TASKS", "8"},
          {"SLURM_STEP_NODELIST", "gnode[10,20]"},
          {"SLURM_JOB_NODELIST", "gnode[10,20,25-27]"},
          {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
          {"SLURM_RESTART_COUNT", "1"}};
}

Environment open_mpi() {
  return {{"OMPI_COMM_WORLD_RANK", "5"},       {"OMPI_COMM_WORLD_SIZE", "8"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "prterun-1"},     {"MEGATRAIN_RENDEZVOUS", "node0:1234"}};
}

Environment hydra() {
  return {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
}

Environment pytorch_job() {
  return {{"KUBERNETES_PORT", "tcp://10.0.0.1:443"},
          {"RANK", "1"},
          {"WORLD_SIZE", "2"},
          {"MASTER_ADDR", "job-master-0"},
          {"MASTER_PORT", "23456"}};
}

Environment trainer_v2() {
  return {{"KUBERNETES_PORT", "tcp://10.0.0.1:443"},
          {"PET_NNODES", "2"},
          {"PET_NPROC_PER_NODE", "1"},
          {"PET_NODE_RANK", "1"},
          {"JOB_COMPLETION_INDEX", "1"},
          {"PET_MASTER_ADDR", "job-node-0-0.job"},
          {"PET_MASTER_PORT", "29500"}};
}

Environment indexed_job() {
  return {{"KUBERNETES_PORT", "tcp://10.0.0.1:443"},
          {"JOB_COMPLETION_INDEX", "1"},
          {"MEGATRAIN_WORLD_SIZE", "2"},
          {"MEGATRAIN_RENDEZVOUS", "job-0.job"}};
}

Environment own() {
  return own_environment({.rank = 5,
                          .world = 8,
                          .local_rank = 1,
                          .local_size = 4,
                          .node = 1,
                          .nodes = 2,
                          .generation = 3,
                          .run_id = "mine",
                          .rendezvous = {"fd00::1", 777},
                          .served = true});
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

Environment without(Environment environment, std::string_view name) {
  environment.erase(environment.find(name));
  return environment;
}

void expect_place(const Environment& environment, const ProcessPlace& expected,
                  const PlaceOverrides& overrides = {}) {
  const ProcessPlace place = detect_place(environment, overrides);
  EXPECT_EQ(place, expected) << describe(place) << ", run " << place.run_id << " at "
                             << to_text(place.rendezvous) << " generation " << place.generation;
}

void expect_refused(const Environment& environment, const std::vector<std::string>& words,
                    const PlaceOverrides& overrides = {}) {
  try {
    const ProcessPlace place = detect_place(environment, overrides);
    ADD_FAILURE() << "not refused: " << describe(place);
  } catch (const UserError& error) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

ProcessPlace fifth_of_eight(PlaceSource source, std::string run_id, Endpoint rendezvous,
                            int generation = 0) {
  return {.rank = 5,
          .world = 8,
          .local_rank = 1,
          .local_size = 4,
          .node = 1,
          .nodes = 2,
          .generation = generation,
          .run_id = std::move(run_id),
          .rendezvous = std::move(rendezvous),
          .source = source};
}

ProcessPlace second_of_two_nodes(std::string run_id, Endpoint rendezvous) {
  return {.rank = 1,
          .world = 2,
          .node = 1,
          .nodes = 2,
          .run_id = std::move(run_id),
          .rendezvous = std::move(rendezvous),
          .source = PlaceSource::kubernetes};
}

TEST(PlaceTest, NobodySaysAnything) { expect_place({{"PATH", "/bin"}}, ProcessPlace{}); }

TEST(PlaceTest, EachLauncher) {
  expect_place(torchrun(), fifth_of_eight(PlaceSource::torchrun, "abc", {"node0", 29500}, 2));
  expect_place(slurm(), fifth_of_eight(PlaceSource::slurm, "slurm-4711.0", {"gnode10", 19711}, 1));
  expect_place(open_mpi(), fifth_of_eight(PlaceSource::mpi, "prterun-1", {"node0", 1234}));
  expect_place(hydra(), {.rank = 1,
                         .world = 2,
                         .local_rank = 1,
                         .local_size = 2,
                         .run_id = "mpi",
                         .rendezvous = {"127.0.0.1", kDefaultPort},
                         .source = PlaceSource::mpi});
  expect_place(pytorch_job(), second_of_two_nodes("pytorchjob", {"job-master-0", 23456}));
  expect_place(trainer_v2(), second_of_two_nodes("pet", {"job-node-0-0.job", 29500}));
  expect_place(indexed_job(), second_of_two_nodes("indexed-job", {"job-0.job", kDefaultPort}));
}

TEST(PlaceTest, OwnVariablesRoundTrip) {
  ProcessPlace expected = fifth_of_eight(PlaceSource::own, "mine", {"fd00::1", 777}, 3);
  expected.served = true;
  expect_place(own(), expected);
}

TEST(PlaceTest, TheFirstInOrderDecides) {
  Environment all = with(with(with(pytorch_job(), slurm()), open_mpi()), torchrun());
  all.erase("MEGATRAIN_RENDEZVOUS");
  EXPECT_EQ(detect_place(with(all, own())).source, PlaceSource::own);
  EXPECT_EQ(detect_place(all).source, PlaceSource::torchrun);
  EXPECT_EQ(detect_place(with(slurm(), open_mpi())).source, PlaceSource::mpi);
  EXPECT_EQ(detect_place(with(slurm(), {{"KUBERNETES_PORT", "x"}})).source, PlaceSource::slurm);
  const PlaceOverrides given{
      .rank = 1, .world = 2, .local_rank = 1, .local_size = 2, .rendezvous = "h:1", .run_id = "r"};
  expect_place(with(all, own()),
               {.rank = 1,
                .world = 2,
                .local_rank = 1,
                .local_size = 2,
                .run_id = "r",
                .rendezvous = {"h", 1},
                .source = PlaceSource::command_line},
               given);
}

TEST(PlaceTest, TorchrunKeepsItsOwnPort) {
  const auto port = [](const char* given) {
    return detect_place(
               with(torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", given}}))
        .rendezvous.port;
  };
  EXPECT_EQ(port("29500"), 29501);
  EXPECT_EQ(port("65535"), 65534);
}

TEST(PlaceTest, SlurmCountsInsideAStepOnly) {
  const Environment salloc = without(slurm(), "SLURM_STEP_ID");
  expect_place(salloc, ProcessPlace{});
  // The step that Slurm makes for the shell itself.
  expect_place(with(slurm(), {{"SLURM_STEP_ID", "4294967290"}}), ProcessPlace{});
  // A step of two tasks in a job of eight.
  const ProcessPlace place = detect_place(with(slurm(), {{"SLURM_STEP_NUM_TASKS", "2"},
                                                         {"SLURM_PROCID", "1"},
                                                         {"SLURM_LOCALID", "0"},
                                                         {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}}));
  EXPECT_EQ(place.world, 2);
  EXPECT_EQ(place.local_size, 1);
}

TEST(PlaceTest, SlurmSpeaksPmiToo) {
  EXPECT_EQ(detect_place(with(slurm(), {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}})).source,
            PlaceSource::slurm);
}

TEST(PlaceTest, StepsOfOneJobMeetAtPortsOfTheirOwn) {
  const auto port = [](const char* job, const char* step) {
    return detect_place(with(slurm(), {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}}))
        .rendezvous.port;
  };
  EXPECT_NE(port("4711", "0"), port("4711", "1"));
  EXPECT_NE(port("4712", "0"), port("4711", "1"));
}

TEST(PlaceTest, UnequalNodesOfSlurm) {
  Environment environment = with(slurm(), {{"SLURM_STEP_TASKS_PER_NODE", "5,3"}});
  EXPECT_EQ(detect_place(environment).local_size, 3);
  expect_refused(
      without(with(environment, {{"SLURM_STEP_NUM_TASKS", "7"}}), "SLURM_STEP_TASKS_PER_NODE"),
      {"SLURM_STEP_TASKS_PER_NODE"});
}

TEST(PlaceTest, AnIndexAloneIsNoWorld) {
  expect_place({{"JOB_COMPLETION_INDEX", "3"}, {"KUBERNETES_PORT", "x"}}, ProcessPlace{});
}

TEST(PlaceTest, RefusedByName) {
  expect_refused(with(torchrun(), {{"RANK", "8"}}), {"rank 8", "world size 8", "torchrun"});
  expect_refused(with(torchrun(), {{"LOCAL_RANK", "4"}}), {"local rank 4", "local size 4"});
  expect_refused(with(torchrun(), {{"RANK", "one"}}), {"RANK='one'"});
  expect_refused(with(torchrun(), {{"RANK", "-1"}}), {"RANK='-1'"});
  expect_refused(with(torchrun(), {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE="});
  expect_refused(without(torchrun(), "MASTER_ADDR"), {"MASTER_ADDR", "torchrun"});
  expect_refused(with(torchrun(), {{"MASTER_PORT", "70000"}}), {"MASTER_PORT=70000"});
  expect_refused(without(torchrun(), "GROUP_RANK"), {"GROUP_RANK", "processes or nodes"});
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"RANK and WORLD_SIZE", "LOCAL_RANK"});
  expect_refused(with(open_mpi(), {{"PMI_RANK", "0"}}), {"PMI_RANK=0", "OMPI_COMM_WORLD_RANK=5"});
  expect_refused(without(open_mpi(), "MEGATRAIN_RENDEZVOUS"), {"MEGATRAIN_RENDEZVOUS=HOST:PORT"});
  expect_refused(with(open_mpi(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), {"node by node"});
  expect_refused(with(slurm(), {{"WORLD_SIZE", "4"}}), {"WORLD_SIZE=4", "Slurm"});
  expect_refused(with(slurm(), {{"RANK", "0"}}), {"RANK=0", "Slurm"});
  expect_refused(without(slurm(), "SLURM_LOCALID"), {"SLURM_LOCALID"});
  expect_refused(with(slurm(), {{"SLURM_STEP_NODELIST", "gnode[10"}}), {"SLURM_STEP_NODELIST"});
  expect_refused(with(trainer_v2(), {{"PET_NPROC_PER_NODE", "4"}}),
                 {"PET_NPROC_PER_NODE=4", "megatrain launch"});
  expect_refused(with(trainer_v2(), {{"PET_NPROC_PER_NODE", "auto"}}), {"PET_NPROC_PER_NODE"});
  expect_refused(with(trainer_v2(), {{"JOB_COMPLETION_INDEX", "0"}}),
                 {"JOB_COMPLETION_INDEX=0", "PET_NODE_RANK=1"});
  expect_refused(without(indexed_job(), "MEGATRAIN_RENDEZVOUS"), {"MEGATRAIN_RENDEZVOUS"});
  expect_refused(without(own(), "MEGATRAIN_LOCAL_RANK"), {"MEGATRAIN_LOCAL_RANK"});
  expect_refused(without(own(), "MEGATRAIN_RANK"), {"MEGATRAIN_RANK"});
  expect_refused(with(own(), {{"MEGATRAIN_RENDEZVOUS", "fd00::1"}}),
                 {"MEGATRAIN_RENDEZVOUS", "brackets"});
  expect_refused(with(own(), {{"MEGATRAIN_WORLD_SIZE", "0"}}), {"world size is 0"});
  expect_refused({}, {"where to meet"}, {.rank = 1, .world = 2, .local_rank = 0, .local_size = 1});
}

TEST(PlaceTest, NodeLists) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_node_list("gnode[10,20,25-27]", "L"),
            (Names{"gnode10", "gnode20", "gnode25", "gnode26", "gnode27"}));
  EXPECT_EQ(expand_node_list("a,b[08-10],c", "L"), (Names{"a", "b08", "b09", "b10", "c"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[1,3]x", "L"), (Names{"r1n1x", "r1n3x", "r2n1x", "r2n3x"}));
  EXPECT_EQ(expand_task_counts("2(x3),1", "L"), (std::vector{2, 2, 2, 1}));
  for (const char* bad : {"", "a,,b", "a[1-", "a[x]", "a[3-1]", "a[1-999999999]", "a[]",
                          "a[0-999]b[0-999]", "a[1-99999999999999999999999]"})
    EXPECT_THROW(expand_node_list(bad, "L"), UserError) << bad;
  for (const char* bad : {"", "2(x", "x", "2(x3", "2(x999999)", "99999999999"})
    EXPECT_THROW(expand_task_counts(bad, "L"), UserError) << bad;
}

TEST(PlaceTest, Endpoints) {
  EXPECT_EQ(parse_endpoint("h:1", "o", 7), (Endpoint{"h", 1}));
  EXPECT_EQ(parse_endpoint("h", "o", 7), (Endpoint{"h", 7}));
  EXPECT_EQ(parse_endpoint("[::1]:2", "o", 7), (Endpoint{"::1", 2}));
  EXPECT_EQ(parse_endpoint("[::1]", "o", 7), (Endpoint{"::1", 7}));
  EXPECT_EQ(to_text({"::1", 2}), "[::1]:2");
  for (const char* bad :
       {"", ":1", "h:", "h:x", "h:65536", "h:-1", "::1", "[::1", "[::1]x", "[]:1"})
    EXPECT_THROW(parse_endpoint(bad, "o", 7), UserError) << bad;
}

NodePlace node_of(const Environment& environment, const NodeOverrides& overrides = {}) {
  return detect_node(environment, overrides);
}

TEST(NodePlaceTest, EachScheduler) {
  EXPECT_EQ(node_of({}), NodePlace{});
  const Environment one_task_a_node = with(slurm(), {{"SLURM_STEP_NUM_TASKS", "2"},
                                                     {"SLURM_PROCID", "1"},
                                                     {"SLURM_LOCALID", "0"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});
  EXPECT_EQ(node_of(one_task_a_node),
            (NodePlace{1, 2, "slurm-4711.0", {"gnode10", 19711}, PlaceSource::slurm}));
  EXPECT_EQ(node_of(pytorch_job()),
            (NodePlace{1, 2, "pytorchjob", {"job-master-0", 23456}, PlaceSource::kubernetes}));
  EXPECT_EQ(node_of(with(trainer_v2(), {{"PET_NPROC_PER_NODE", "8"}})),
            (NodePlace{1, 2, "pet", {"job-node-0-0.job", 29500}, PlaceSource::kubernetes}));
  EXPECT_EQ(node_of(pytorch_job(), {.node = 2, .nodes = 3, .rendezvous = "h:5", .run_id = "r"}),
            (NodePlace{2, 3, "r", {"h", 5}, PlaceSource::command_line}));
  EXPECT_EQ(node_of({{"JOB_COMPLETION_INDEX", "1"}}, {.nodes = 2, .rendezvous = "h"}).node, 1);
}

TEST(NodePlaceTest, Refused) {
  EXPECT_THROW(node_of(own()), UserError);
  EXPECT_THROW(node_of(torchrun()), UserError);
  EXPECT_THROW(node_of(open_mpi()), UserError);
  EXPECT_THROW(node_of(slurm()), UserError);  // four tasks on this node
  EXPECT_THROW(node_of({}, {.nodes = 2, .rendezvous = "h"}), UserError);
  EXPECT_THROW(node_of({}, {.node = 0, .nodes = 2}), UserError);
  EXPECT_THROW(node_of({}, {.node = 2, .nodes = 2, .rendezvous = "h"}), UserError);
}

}  // namespace
}  // namespace megatrain::parallel
