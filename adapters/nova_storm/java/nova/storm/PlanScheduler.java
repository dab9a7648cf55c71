package nova.storm;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.DefaultScheduler;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.SchedulerAssignment;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Puts each executor of a topology that brings a plan on the supervisor of its node, in one worker
 * per node, and leaves every other topology to another scheduler: Storm's default one, or that which
 * {@code nova.scheduler.others} names in nimbus' configuration.
 *
 * <p>The plan is in the topology's configuration: {@code nova.placement}, from components to nodes; of
 * one that was placed while it ran, in nimbus' blob store ({@link Placements}). Nimbus keeps both, so
 * there is nothing here that a restart could lose.
 * A supervisor is a node's by {@code nova.node} in its {@code supervisor.scheduler.meta}.
 *
 * <p>A topology is placed as a whole or, with the reason in nimbus' log and in the topology's
 * status, not at all; of one that has lost a node, the rest runs on and waits for it.
 */
public final class PlanScheduler implements IScheduler {
  /** In a topology's configuration. */
  public static final String PLACEMENT = "nova.placement";

  /** In a supervisor's metadata. */
  public static final String NODE = "nova.node";

  /** In nimbus' configuration: class of the scheduler of topologies without a plan. */
  public static final String OTHERS = "nova.scheduler.others";

  private static final Logger LOG = LoggerFactory.getLogger(PlanScheduler.class);

  // What was last said of a topology, to say a thing once.
  private final Map<String, String> said = new HashMap<>();

  private IScheduler rest = new DefaultScheduler();
  // None before nimbus has prepared the scheduler.
  private Placements placements;

  @Override
  public void prepare(Map<String, Object> conf, StormMetricsRegistry metricsRegistry) {
    Object name = conf.get(OTHERS);
    if (name != null) {
      try {
        Object made = Class.forName(name.toString()).getDeclaredConstructor().newInstance();
        if (!(made instanceof IScheduler scheduler) || made instanceof PlanScheduler) {
          throw new IllegalArgumentException(OTHERS + ": " + name + ": is no scheduler of Storm's");
        }
        rest = scheduler;
      } catch (ReflectiveOperationException error) {
        throw new IllegalArgumentException(OTHERS + ": " + name + ": cannot be made: " + error);
      }
    }
    rest.prepare(conf, metricsRegistry);
    placements = new Placements(conf);
    LOG.info("Topologies with {} are placed by it, others by {}", PLACEMENT, rest.getClass());
  }

  @Override
  public void schedule(Topologies topologies, Cluster cluster) {
    Map<String, List<SupervisorDetails>> nodes = nodes(cluster);
    Set<String> planned = new HashSet<>();
    for (TopologyDetails topology : topologies) {
      Object later = placements == null ? null : placements.of(topology.getId());
      Object placement = later == null ? topology.getConf().get(PLACEMENT) : later;
      if (placement != null) {
        planned.add(topology.getId());
        String problem = place(topology, placement, nodes, cluster);
        tell(topology, problem, cluster);
      }
    }
    said.keySet().retainAll(planned);
    Others others = new Others(cluster, planned);
    if (!others.needsSchedulingTopologies().isEmpty()) {
      rest.schedule(topologies, others);
      cluster.updateFrom(others);
    }
  }

  /** The supervisors of each node; more than one is a mistake that is reported where it matters. */
  private static Map<String, List<SupervisorDetails>> nodes(Cluster cluster) {
    Map<String, List<SupervisorDetails>> found = new TreeMap<>();
    for (SupervisorDetails supervisor : cluster.getSupervisors().values()) {
      if (supervisor.getSchedulerMeta() instanceof Map<?, ?> meta && meta.get(NODE) != null) {
        found.computeIfAbsent(meta.get(NODE).toString(), n -> new ArrayList<>()).add(supervisor);
      }
    }
    return found;
  }

  /** Places what is not yet where the plan has it; what is in the way, or null. */
  private static String place(
      TopologyDetails topology,
      Object placement,
      Map<String, List<SupervisorDetails>> nodes,
      Cluster cluster) {
    if (!(placement instanceof Map<?, ?> plan)) {
      return PLACEMENT + " is not a mapping from components to nodes";
    }
    Map<String, Set<ExecutorDetails>> wanted = new TreeMap<>();
    Set<String> problems = new TreeSet<>();
    for (Map.Entry<ExecutorDetails, String> entry : topology.getExecutorToComponent().entrySet()) {
      Object node = plan.get(entry.getValue());
      if (node == null) {
        problems.add("component " + entry.getValue() + " is not in the plan");
      } else {
        wanted.computeIfAbsent(node.toString(), n -> new HashSet<>()).add(entry.getKey());
      }
    }
    Map<String, WorkerSlot> settled = settle(topology, wanted, nodes, cluster);
    boolean fresh = settled.isEmpty();
    Map<String, WorkerSlot> chosen = new TreeMap<>();
    for (String node : wanted.keySet()) {
      if (settled.containsKey(node)) {
        continue;
      }
      List<SupervisorDetails> there = nodes.getOrDefault(node, List.of());
      if (there.isEmpty()) {
        problems.add("node " + node + " has no supervisor");
      } else if (there.size() > 1) {
        problems.add("node " + node + " has " + there.size() + " supervisors");
      } else {
        List<WorkerSlot> free = cluster.getAvailableSlots(there.get(0));
        if (free.isEmpty()) {
          problems.add("node " + node + " has no free slot");
        } else {
          chosen.put(node, free.get(0));
        }
      }
    }
    if (problems.isEmpty() || !fresh) {
      chosen.forEach((node, slot) -> cluster.assign(slot, topology.getId(), wanted.get(node)));
    }
    return problems.isEmpty() ? null : String.join("; ", problems);
  }

  /**
   * Slots that hold exactly what the plan has on their node; others of the topology are freed. A
   * worker goes on without its supervisor, which may only be restarting: that is no reason to free
   * its slot.
   */
  private static Map<String, WorkerSlot> settle(
      TopologyDetails topology,
      Map<String, Set<ExecutorDetails>> wanted,
      Map<String, List<SupervisorDetails>> nodes,
      Cluster cluster) {
    Map<String, WorkerSlot> settled = new TreeMap<>();
    SchedulerAssignment assignment = cluster.getAssignmentById(topology.getId());
    if (assignment == null) {
      return settled;
    }
    Map<WorkerSlot, Collection<ExecutorDetails>> held =
        new HashMap<>(assignment.getSlotToExecutors());
    for (Map.Entry<WorkerSlot, Collection<ExecutorDetails>> entry : held.entrySet()) {
      Set<ExecutorDetails> executors = new HashSet<>(entry.getValue());
      String node =
          cluster.getSupervisorById(entry.getKey().getNodeId()) == null
              ? nodeWanting(executors, wanted)
              : nodeOf(entry.getKey(), nodes);
      boolean right =
          node != null && !settled.containsKey(node) && executors.equals(wanted.get(node));
      if (right) {
        settled.put(node, entry.getKey());
      } else {
        cluster.freeSlot(entry.getKey());
      }
    }
    return settled;
  }

  private static String nodeWanting(
      Set<ExecutorDetails> executors, Map<String, Set<ExecutorDetails>> wanted) {
    for (Map.Entry<String, Set<ExecutorDetails>> entry : wanted.entrySet()) {
      if (entry.getValue().equals(executors)) {
        return entry.getKey();
      }
    }
    return null;
  }

  private static String nodeOf(WorkerSlot slot, Map<String, List<SupervisorDetails>> nodes) {
    for (Map.Entry<String, List<SupervisorDetails>> entry : nodes.entrySet()) {
      for (SupervisorDetails supervisor : entry.getValue()) {
        if (supervisor.getId().equals(slot.getNodeId())) {
          return entry.getKey();
        }
      }
    }
    return null;
  }

  private void tell(TopologyDetails topology, String problem, Cluster cluster) {
    if (problem == null) {
      cluster.setStatus(topology.getId(), "Placed by its plan");
      if (!"".equals(said.put(topology.getId(), ""))) {
        LOG.info("Topology {} is placed by its plan", topology.getName());
      }
      return;
    }
    cluster.setStatus(topology.getId(), "NOT PLACED by its plan: " + problem);
    if (!problem.equals(said.put(topology.getId(), problem))) {
      LOG.error("Topology {} is NOT PLACED by its plan: {}", topology.getName(), problem);
    }
  }

  @Override
  public Map<String, Map<String, Double>> config() {
    return rest.config();
  }

  @Override
  public void cleanup() {
    rest.cleanup();
  }

  /** The cluster as the other scheduler may see it: what has a plan needs nothing of it. */
  private static final class Others extends Cluster {
    private final Set<String> planned;

    Others(Cluster cluster, Set<String> planned) {
      super(cluster);
      this.planned = planned;
    }

    @Override
    public List<TopologyDetails> needsSchedulingTopologies() {
      List<TopologyDetails> found = new ArrayList<>(super.needsSchedulingTopologies());
      found.removeIf(topology -> planned.contains(topology.getId()));
      return found;
    }
  }
}
