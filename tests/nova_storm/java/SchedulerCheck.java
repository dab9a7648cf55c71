import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import nova.storm.PlanScheduler;
import org.apache.storm.daemon.nimbus.Nimbus;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.SchedulerAssignment;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.Topologies;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;
import org.apache.storm.scheduler.resource.normalization.ResourceMetrics;
import org.apache.storm.utils.Utils;

/** Drives the scheduler with clusters as nimbus makes them; a line for each case. */
public final class SchedulerCheck {
  private static final int SLOTS = 2;
  private static int failures;

  private final Map<String, SupervisorDetails> supervisors = new TreeMap<>();
  private final Map<String, TopologyDetails> topologies = new TreeMap<>();
  private Map<String, SchedulerAssignment> assignments = new HashMap<>();
  private PlanScheduler scheduler = new PlanScheduler();
  private Cluster cluster;

  public static void main(String[] arguments) {
    check("each executor is on its node", SchedulerCheck::placesEverything);
    check("two supervisors of a node are refused", SchedulerCheck::refusesTwoOfOneName);
    check("a missing node places nothing and says so", SchedulerCheck::missingNode);
    check("a component outside the plan places nothing", SchedulerCheck::unknownComponent);
    check("a full node is said", SchedulerCheck::fullNode);
    check("others go to the default scheduler", SchedulerCheck::leavesOthers);
    check("others go to the scheduler that is named", SchedulerCheck::namedScheduler);
    check("a scheduler that there is not is said", SchedulerCheck::noSuchScheduler);
    check("ackers are on their node", SchedulerCheck::ackers);
    check("nothing moves when nimbus restarts", SchedulerCheck::survivesRestart);
    check("what is elsewhere is moved", SchedulerCheck::movesWhatIsElsewhere);
    check("a lost node leaves the rest running", SchedulerCheck::lostNode);
    check("a worker outlives its supervisor", SchedulerCheck::supervisorAway);
    System.exit(failures == 0 ? 0 : 1);
  }

  private static void check(String name, java.util.function.Consumer<SchedulerCheck> body) {
    try {
      body.accept(new SchedulerCheck());
      System.out.println("ok " + name);
    } catch (AssertionError | RuntimeException error) {
      failures++;
      System.out.println("FAILED " + name + ": " + error);
    }
  }

  private void supervisor(String id, String node) {
    List<Integer> ports = new ArrayList<>();
    for (int i = 0; i < SLOTS; i++) {
      ports.add(6700 + i);
    }
    Object meta = node == null ? null : Map.of(PlanScheduler.NODE, node);
    supervisors.put(id, new SupervisorDetails(id, "host-" + id, meta, ports, Map.of()));
  }

  /** A topology of one executor per component; with a plan unless that is null. */
  private void topology(String id, Map<String, String> plan, String... components) {
    Map<String, Object> conf = Utils.readDefaultConfig();
    conf.put("topology.name", id);
    conf.put("topology.workers", 1);
    if (plan != null) {
      conf.put(PlanScheduler.PLACEMENT, plan);
    }
    Map<ExecutorDetails, String> executors = new HashMap<>();
    for (int i = 0; i < components.length; i++) {
      executors.put(new ExecutorDetails(i + 1, i + 1), components[i]);
    }
    StormTopology empty = new StormTopology(Map.of(), Map.of(), Map.of());
    topologies.put(id, new TopologyDetails(id, conf, empty, 1, executors, 0, "owner"));
  }

  private void schedule() {
    Topologies all = new Topologies(topologies);
    cluster =
        new Cluster(
            new Nimbus.StandaloneINimbus(),
            new ResourceMetrics(new StormMetricsRegistry()),
            supervisors,
            assignments,
            all,
            Utils.readDefaultConfig());
    scheduler.schedule(all, cluster);
    assignments = new HashMap<>(cluster.getAssignments());
  }

  /** Component to "supervisor:port", for what is assigned. */
  private Map<String, String> placed(String topology) {
    Map<String, String> found = new TreeMap<>();
    SchedulerAssignment assignment = cluster.getAssignmentById(topology);
    if (assignment != null) {
      Map<ExecutorDetails, String> components =
          topologies.get(topology).getExecutorToComponent();
      for (Map.Entry<ExecutorDetails, WorkerSlot> entry :
          assignment.getExecutorToSlot().entrySet()) {
        found.put(components.get(entry.getKey()), entry.getValue().getNodeId());
      }
    }
    return found;
  }

  private Set<WorkerSlot> slots(String topology) {
    return new HashSet<>(cluster.getAssignmentById(topology).getSlots());
  }

  private static void same(Object seen, Object expected) {
    if (!expected.equals(seen)) {
      throw new AssertionError("expected " + expected + ", is " + seen);
    }
  }

  private void status(String topology, String expected) {
    same(cluster.getStatus(topology), expected);
  }

  private static final Map<String, String> PLAN =
      Map.of("source a", "hill", "join", "barn", "sink", "barn");

  private void planned() {
    supervisor("s1", "hill");
    supervisor("s2", "barn");
    supervisor("s3", "mill");
    topology("t", PLAN, "source a", "join", "sink");
  }

  private void placesEverything() {
    planned();
    schedule();
    same(placed("t"), Map.of("source a", "s1", "join", "s2", "sink", "s2"));
    same(slots("t").size(), 2);
    status("t", "Placed by its plan");
  }

  private void refusesTwoOfOneName() {
    planned();
    supervisor("s4", "hill");
    schedule();
    same(placed("t"), Map.of());
    status("t", "NOT PLACED by its plan: node hill has 2 supervisors");
  }

  private void missingNode() {
    planned();
    supervisors.remove("s1");
    schedule();
    same(placed("t"), Map.of());
    status("t", "NOT PLACED by its plan: node hill has no supervisor");
    supervisor("s9", "hill");
    schedule();
    same(placed("t").get("source a"), "s9");
    status("t", "Placed by its plan");
  }

  private void unknownComponent() {
    planned();
    topology("t", PLAN, "source a", "join", "sink", "__acker");
    schedule();
    same(placed("t"), Map.of());
    status("t", "NOT PLACED by its plan: component __acker is not in the plan");
  }

  private void fullNode() {
    planned();
    topology("u", Map.of("x", "hill"), "x");
    topology("v", Map.of("x", "hill"), "x");
    topology("w", Map.of("x", "hill"), "x");
    schedule();
    int unplaced = 0;
    for (String id : List.of("t", "u", "v", "w")) {
      if (placed(id).isEmpty()) {
        unplaced++;
        status(id, "NOT PLACED by its plan: node hill has no free slot");
      }
    }
    same(unplaced, 2);
  }

  private void leavesOthers() {
    planned();
    supervisors.remove("s1");
    topology("other", null, "a", "b", "c");
    schedule();
    // What has a plan stays without a place though there is room elsewhere.
    same(placed("t"), Map.of());
    same(placed("other").keySet(), Set.of("a", "b", "c"));
    supervisor("s1", "hill");
    Set<WorkerSlot> before = slots("other");
    schedule();
    same(slots("other"), before);
    same(placed("t").get("source a"), "s1");
    before.retainAll(slots("t"));
    same(before, Set.of());
  }

  /** Places nothing, and remembers what it was to place. */
  public static final class Recorder implements IScheduler {
    static final Set<String> SEEN = new HashSet<>();

    @Override
    public void prepare(Map<String, Object> conf, StormMetricsRegistry registry) {
      SEEN.clear();
    }

    @Override
    public void schedule(Topologies topologies, Cluster cluster) {
      for (TopologyDetails one : cluster.needsSchedulingTopologies()) {
        SEEN.add(one.getId());
      }
    }

    @Override
    public Map<String, Map<String, Double>> config() {
      return Map.of();
    }
  }

  private void namedScheduler() {
    planned();
    topology("other", null, "a", "b");
    scheduler.prepare(Map.of(PlanScheduler.OTHERS, Recorder.class.getName()), null);
    schedule();
    same(Recorder.SEEN, Set.of("other"));
    same(placed("other"), Map.of());
    same(placed("t").get("source a"), "s1");
  }

  private void noSuchScheduler() {
    for (String wrong : List.of("no.such.Scheduler", "java.lang.Object")) {
      try {
        new PlanScheduler().prepare(Map.of(PlanScheduler.OTHERS, wrong), null);
        throw new AssertionError(wrong + " is taken");
      } catch (IllegalArgumentException error) {
        same(error.getMessage().contains(wrong), true);
      }
    }
  }

  private void ackers() {
    planned();
    topology("words", Map.of("spout", "hill", "__acker", "hill"), "spout", "__acker", "__acker");
    schedule();
    same(placed("words"), Map.of("spout", "s1", "__acker", "s1"));
  }

  private void survivesRestart() {
    planned();
    topology("other", null, "a", "b");
    schedule();
    Set<WorkerSlot> before = slots("t");
    Set<WorkerSlot> others = slots("other");
    scheduler = new PlanScheduler();
    schedule();
    same(slots("t"), before);
    same(slots("other"), others);
    status("t", "Placed by its plan");
  }

  private void movesWhatIsElsewhere() {
    planned();
    topology("t", null, "source a", "join", "sink");
    schedule();
    same(placed("t").size(), 3);
    topology("t", PLAN, "source a", "join", "sink");
    schedule();
    same(placed("t"), Map.of("source a", "s1", "join", "s2", "sink", "s2"));
  }

  private void lostNode() {
    planned();
    schedule();
    WorkerSlot barn = null;
    for (WorkerSlot slot : slots("t")) {
      if (slot.getNodeId().equals("s2")) {
        barn = slot;
      }
    }
    // Nimbus drops what has not reported for long, and the supervisor with it.
    cluster.freeSlot(barn);
    assignments = new HashMap<>(cluster.getAssignments());
    supervisors.remove("s2");
    schedule();
    same(placed("t"), Map.of("source a", "s1"));
    status("t", "NOT PLACED by its plan: node barn has no supervisor");
    supervisor("s8", "barn");
    schedule();
    same(placed("t"), Map.of("source a", "s1", "join", "s8", "sink", "s8"));
  }

  private void supervisorAway() {
    planned();
    schedule();
    Set<WorkerSlot> before = slots("t");
    supervisors.remove("s2");
    schedule();
    same(slots("t"), before);
    status("t", "Placed by its plan");
  }
}
