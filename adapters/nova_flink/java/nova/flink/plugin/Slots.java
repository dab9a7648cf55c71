package nova.flink.plugin;

import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.api.common.operators.ResourceSpec;
import org.apache.flink.api.common.resources.CPUResource;
import org.apache.flink.api.common.resources.ExternalResource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.core.memory.ManagedMemoryUseCase;
import org.apache.flink.runtime.clusterframework.types.ResourceProfile;
import org.apache.flink.runtime.jobgraph.JobType;
import org.apache.flink.runtime.rest.messages.ResourceProfileInfo;
import org.apache.flink.runtime.rest.messages.taskmanager.TaskManagerInfo;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;

/** The slots that a placed job needs: on each node, how many and what of. */
final class Slots {
  // Flink wants both given; they limit nothing but how many jobs are on a node at once.
  private static final CPUResource CPU = new CPUResource(0.01);
  private static final MemorySize HEAP = MemorySize.ofMebiBytes(1);
  private static final MemorySize MANAGED = MemorySize.ofMebiBytes(64);

  private final StreamGraph graph;
  private final Configuration configuration;
  private final Map<String, Integer> counts = new LinkedHashMap<>();
  private final Map<String, Set<String>> groups = new HashMap<>();
  private final Map<String, MemorySize> managed = new HashMap<>();
  private final Map<StreamNode, MemorySize> parts = new HashMap<>();
  private final Map<String, ResourceProfile> profiles = new LinkedHashMap<>();

  /** The slots of a placement; refuses what the job's author forbids. */
  Slots(Shape shape, Placement placement, Configuration configuration) {
    graph = shape.graph;
    this.configuration = configuration;
    Map<String, String> together = new HashMap<>();
    for (Step step : shape.steps) {
      share(step);
      List<Placement.Instance> pieces = placement.cuts.get(step);
      for (StreamNode one : step.members) {
        if (pieces != null && one == step.head) {
          pieces.forEach(piece -> add(one, piece.node));
          continue; // it can be cut, so it has no co-location group
        }
        String node = placement.nodes.get(pieces == null ? step : shape.receiver(step));
        add(one, node);
        String other = together.putIfAbsent("" + one.getCoLocationGroup(), node);
        if (one.getCoLocationGroup() != null && other != null && !other.equals(node)) {
          throw new Refusal(
              one.getOperatorName() + ": the job binds it to operators on " + other
                  + " by a co-location group, and the plan has it on " + node);
        }
      }
    }
    counts.keySet().forEach(node -> profiles.put(node, profile(node)));
  }

  /** Operators that may become a chain have a slot's managed memory together. */
  private void share(Step step) {
    long using = step.members.stream().filter(one -> managed(one).getBytes() > 0).count();
    step.members.forEach(
        one -> parts.put(one, new MemorySize(managed(one).getBytes() / Math.max(1, using))));
  }

  private void add(StreamNode one, String node) {
    // Parallelism is not decided yet in some batch jobs.
    counts.merge(node, Math.max(1, one.getParallelism()), Math::max);
    groups.computeIfAbsent(node, key -> new HashSet<>()).add(one.getSlotSharingGroup());
    managed.merge(node, managed(one), (a, b) -> a.compareTo(b) > 0 ? a : b);
  }

  /** A slot on a node: what all groups of the author's that have operators there ask for. */
  private ResourceProfile profile(String node) {
    ResourceProfile asked = ResourceProfile.ZERO;
    for (String group : groups.get(node)) {
      ResourceProfile one =
          graph.getSlotSharingGroupResource(group).orElse(ResourceProfile.UNKNOWN);
      asked = one.equals(ResourceProfile.UNKNOWN) ? asked : asked.merge(one);
    }
    ResourceProfile.Builder slot =
        ResourceProfile.newBuilder()
            .setCpuCores(asked.getCpuCores().compareTo(CPU) > 0 ? asked.getCpuCores() : CPU)
            .setTaskHeapMemory(most(asked.getTaskHeapMemory(), HEAP))
            .setTaskOffHeapMemory(asked.getTaskOffHeapMemory())
            .setManagedMemory(most(asked.getManagedMemory(), managed.get(node)))
            .setExtendedResource(unit(node, 1));
    for (ExternalResource one : asked.getExtendedResources().values()) {
      if (!Names.isNode(one.getName())) {
        slot.setExtendedResource(one);
      } else if (!one.getName().equals(Names.resource(node))) {
        throw new Refusal(
            "the job asks for " + one.getName() + " by a slot-sharing group of operators that the"
                + " plan has on " + node + ": take the resource out of the job, or plan it again");
      }
    }
    return slot.build();
  }

  private static MemorySize most(MemorySize one, MemorySize other) {
    return one.compareTo(other) > 0 ? one : other;
  }

  private static ExternalResource unit(String node, double amount) {
    return new ExternalResource(Names.resource(node), amount);
  }

  /** Managed memory that an operator's slot must have. */
  private MemorySize managed(StreamNode one) {
    Set<ManagedMemoryUseCase> cases = one.getManagedMemorySlotScopeUseCases();
    String backend = graph.getJobConfiguration().get(StateBackendOptions.STATE_BACKEND);
    backend = backend == null ? configuration.get(StateBackendOptions.STATE_BACKEND) : backend;
    boolean embedded = backend != null && !backend.toLowerCase().contains("hashmap");
    MemorySize given = configuration.get(Settings.MANAGED_MEMORY);
    boolean state = cases.contains(ManagedMemoryUseCase.STATE_BACKEND);
    boolean python = cases.contains(ManagedMemoryUseCase.PYTHON);
    boolean sorts = !one.getManagedMemoryOperatorScopeUseCaseWeights().isEmpty();
    if (given != null) {
      return state || python || sorts ? given : MemorySize.ZERO;
    }
    return (state && embedded) || python || sorts ? MANAGED : MemorySize.ZERO;
  }

  /** Refuse what the cluster has no room for, before anything is sent. */
  void check(Cluster cluster, String origin) {
    Collection<TaskManagerInfo> managers = cluster.taskManagers();
    counts.forEach(
        (node, count) -> {
          String resource = Names.resource(node);
          List<TaskManagerInfo> of =
              managers.stream()
                  .filter(one -> Cluster.offered(one).contains(resource))
                  .collect(Collectors.toList());
          if (of.isEmpty()) {
            throw new Refusal(
                origin + ": node " + node + ": no TaskManager of " + cluster.url
                    + " offers the external resource " + resource);
          }
          // What does not run at once in a batch job waits for what does.
          int needed = graph.getJobType() == JobType.BATCH ? 1 : count;
          int fit = of.stream().mapToInt(one -> fit(one.getFreeResource(), node, needed)).sum();
          if (fit < needed) {
            throw new Refusal(
                origin + ": node " + node + ": its TaskManager has room for " + fit + " of the "
                    + needed + " slots that the job needs there: a slot takes "
                    + text(ResourceProfileInfo.fromResourceProfile(profiles.get(node))) + ", and "
                    + text(of.get(0).getFreeResource()) + " are free");
          }
        });
  }

  private int fit(ResourceProfileInfo free, String node, int most) {
    ResourceProfile slot = profiles.get(node);
    ResourceProfile.Builder room =
        ResourceProfile.newBuilder()
            .setCpuCores(free.getCpu())
            .setTaskHeapMemoryMB(free.getTaskHeapMB())
            .setTaskOffHeapMemoryMB(free.getTaskOffHeapMB())
            .setManagedMemoryMB(free.getManagedMB());
    free.getExtendedResources()
        .forEach((name, amount) -> room.setExtendedResource(new ExternalResource(name, amount)));
    ResourceProfile left = room.build();
    int count = 0;
    while (count < most && left.allFieldsNoLessThan(slot)) {
      left = left.subtract(slot);
      count++;
    }
    return count;
  }

  private static String text(ResourceProfileInfo one) {
    StringBuilder found = new StringBuilder();
    found.append(String.format("%.4g cores, %d MB of heap", one.getCpu(), one.getTaskHeapMB()));
    found.append(String.format(", %d MB of managed memory", one.getManagedMB()));
    one.getExtendedResources()
        .forEach((name, amount) -> found.append(String.format(", %.4g %s", amount, name)));
    return found.toString();
  }

  /** Pin every operator. */
  void pin(Map<StreamNode, String> at) {
    Map<String, ResourceProfile> resources = new HashMap<>();
    profiles.forEach((node, slot) -> resources.put(Names.group(node), slot));
    double share = 1.0 / at.size();
    at.forEach(
        (one, node) -> {
          one.setSlotSharingGroup(Names.group(node));
          if (graph.getJobType() == JobType.BATCH) {
            // The adaptive batch scheduler looks at operators and not at groups. It adds up what
            // those of a chain ask for.
            ResourceSpec asked =
                ResourceSpec.newBuilder(CPU.getValue().doubleValue(), HEAP)
                    .setManagedMemory(parts.getOrDefault(one, managed(one)))
                    .setExtendedResource(unit(node, share))
                    .build();
            graph.setResources(one.getId(), asked, asked);
          }
        });
    graph.setSlotSharingGroupResource(resources);
  }
}
