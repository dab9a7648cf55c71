package nova.storm;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import net.minidev.json.JSONValue;
import org.apache.storm.Config;
import org.apache.storm.daemon.StormCommon;
import org.apache.storm.generated.BoltStats;
import org.apache.storm.generated.ClusterSummary;
import org.apache.storm.generated.ExecutorStats;
import org.apache.storm.generated.ExecutorSummary;
import org.apache.storm.generated.GlobalStreamId;
import org.apache.storm.generated.KillOptions;
import org.apache.storm.generated.Nimbus;
import org.apache.storm.generated.RebalanceOptions;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.generated.SupervisorSummary;
import org.apache.storm.generated.TopologyInfo;
import org.apache.storm.generated.TopologySummary;
import org.apache.storm.utils.NimbusClient;
import org.apache.storm.utils.Utils;

/**
 * Asks nimbus by Thrift and writes its answer as JSON: HOST PORT status [SECONDS SUPERVISORS NAME...],
 * HOST PORT kill NAME, or HOST PORT rebalance NAME PLACEMENT WORKERS.
 *
 * <p>With SECONDS it asks again, for at most so long, until there are that many supervisors and all
 * executors of the topologies named run.
 */
public final class Ask {
  private static final String ALL = ":all-time";
  private static final long POLL_MS = 300;
  private static final long STARTED_MS = 40_000;

  private Ask() {}

  /** See the class. */
  public static void main(String[] arguments) throws Exception {
    Map<String, Object> conf = Utils.readStormConfig();
    conf.put(Config.NIMBUS_SEEDS, List.of(arguments[0]));
    conf.put(Config.NIMBUS_THRIFT_PORT, Integer.parseInt(arguments[1]));
    // Storm's own value has a nimbus that is not there looked for over ten seconds.
    conf.put(Config.STORM_NIMBUS_RETRY_INTERVAL, 200);
    try (NimbusClient client = NimbusClient.Builder.withConf(conf).build()) {
      if (arguments[2].equals("kill")) {
        String id = id(client.getClient(), arguments[3]);
        KillOptions options = new KillOptions();
        options.set_wait_secs(0);
        client.getClient().killTopologyWithOpts(arguments[3], options);
        if (id != null) {
          Placements.drop(conf, id);
        }
      } else if (arguments[2].equals("rebalance")) {
        String id = id(client.getClient(), arguments[3]);
        if (id != null) {
          awaitStarted(client.getClient(), id);
          Placements.write(conf, id, arguments[4]);
        }
        RebalanceOptions options = new RebalanceOptions();
        options.set_wait_secs(0);
        options.set_num_workers(Integer.parseInt(arguments[5]));
        client.getClient().rebalance(arguments[3], options);
      } else {
        System.out.println(JSONValue.toJSONString(awaited(client.getClient(), arguments)));
      }
    }
    // Threads of the client may outlive it.
    System.exit(0);
  }

  /** Of a topology that runs, or null: nimbus says what is wrong when it is asked for more. */
  private static String id(Nimbus.Iface nimbus, String name) throws Exception {
    for (TopologySummary one : nimbus.getClusterInfo().get_topologies()) {
      if (one.get_name().equals(name)) {
        return one.get_id();
      }
    }
    return null;
  }

  /**
   * Waits until none of a topology's workers is just starting. A supervisor that is to end such a
   * one does not know its process id yet: it lives on, keeps its port, and the worker that is started
   * in its place fails for minutes.
   */
  private static void awaitStarted(Nimbus.Iface nimbus, String id) throws Exception {
    long begun = System.nanoTime();
    while (!nimbus.getTopologyInfo(id).get_executors().stream().allMatch(Ask::runs)
        && System.nanoTime() - begun < STARTED_MS * 1e6) {
      Thread.sleep(POLL_MS);
    }
  }

  /** How everything is, once it is as the arguments of `status` say, or their time is up. */
  private static Map<String, Object> awaited(Nimbus.Iface nimbus, String[] arguments)
      throws Exception {
    if (arguments.length < 5) {
      return status(nimbus);
    }
    double seconds = Double.parseDouble(arguments[3]);
    int supervisors = Integer.parseInt(arguments[4]);
    List<String> names = List.of(arguments).subList(5, arguments.length);
    long begun = System.nanoTime();
    while (true) {
      ClusterSummary cluster = nimbus.getClusterInfo();
      boolean there = cluster.get_supervisors_size() >= supervisors;
      for (TopologySummary one : cluster.get_topologies()) {
        if (names.contains(one.get_name())) {
          List<ExecutorSummary> executors =
              nimbus.getTopologyInfo(one.get_id()).get_executors();
          there &= !executors.isEmpty() && executors.stream().allMatch(Ask::runs);
        }
      }
      if (there || System.nanoTime() - begun > seconds * 1e9) {
        return status(nimbus);
      }
      Thread.sleep(POLL_MS);
    }
  }

  /** Nimbus lists what it has assigned; a worker that runs has sent statistics. */
  private static boolean runs(ExecutorSummary executor) {
    return executor.is_set_stats() || executor.get_uptime_secs() > 0;
  }

  private static Map<String, Object> status(Nimbus.Iface nimbus) throws Exception {
    ClusterSummary cluster = nimbus.getClusterInfo();
    List<Object> supervisors = new ArrayList<>();
    for (SupervisorSummary one : cluster.get_supervisors()) {
      Map<String, Object> row = new LinkedHashMap<>();
      row.put("id", one.get_supervisor_id());
      row.put("host", one.get_host());
      row.put("workers", one.get_num_workers());
      row.put("used", one.get_num_used_workers());
      supervisors.add(row);
    }
    List<Object> topologies = new ArrayList<>();
    for (TopologySummary one : cluster.get_topologies()) {
      topologies.add(topology(nimbus, one));
    }
    return Map.of("supervisors", supervisors, "topologies", topologies);
  }

  private static Map<String, Object> topology(Nimbus.Iface nimbus, TopologySummary one)
      throws Exception {
    TopologyInfo info = nimbus.getTopologyInfo(one.get_id());
    List<Object> executors = new ArrayList<>();
    for (ExecutorSummary executor : info.get_executors()) {
      Map<String, Object> row = new LinkedHashMap<>();
      row.put("component", executor.get_component_id());
      row.put("task", executor.get_executor_info().get_task_start());
      row.put("host", executor.get_host());
      row.put("port", executor.get_port());
      row.put("running", runs(executor));
      if (executor.is_set_stats()) {
        count(executor.get_stats(), row);
      }
      executors.add(row);
    }
    Map<String, Object> row = new LinkedHashMap<>();
    row.put("name", one.get_name());
    row.put("id", one.get_id());
    row.put("status", one.get_status());
    row.put("scheduling", info.get_sched_status());
    row.put("executors", executors);
    // Executors are of what has been scheduled; a topology may wait for that.
    row.put("components", components(nimbus.getTopology(one.get_id())));
    return row;
  }

  /** Names of all components that have executors, Storm's own included. */
  private static List<String> components(StormTopology topology) throws Exception {
    List<String> names = new ArrayList<>();
    for (Map.Entry<String, Object> one : StormCommon.allComponents(topology).entrySet()) {
      if (StormCommon.numStartExecutors(one.getValue()) > 0) {
        names.add(one.getKey());
      }
    }
    return names;
  }

  /** What an executor has done since it started; Storm looks at one tuple in twenty. */
  private static void count(ExecutorStats stats, Map<String, Object> row) {
    row.put("emitted", sum(stats.get_emitted().get(ALL)));
    if (stats.get_specific().is_set_bolt()) {
      BoltStats bolt = stats.get_specific().get_bolt();
      Map<GlobalStreamId, Long> executed = bolt.get_executed().getOrDefault(ALL, Map.of());
      Map<GlobalStreamId, Double> each = bolt.get_execute_ms_avg().getOrDefault(ALL, Map.of());
      row.put("executed", sum(executed));
      row.put(
          "busy_ms",
          executed.entrySet().stream()
              .mapToDouble(one -> one.getValue() * each.getOrDefault(one.getKey(), 0.0))
              .sum());
    }
  }

  private static long sum(Map<?, Long> counts) {
    return counts == null ? 0 : counts.values().stream().mapToLong(Long::longValue).sum();
  }
}
