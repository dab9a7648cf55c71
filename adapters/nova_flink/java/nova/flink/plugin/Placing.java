package nova.flink.plugin;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.flink.api.common.resources.ExternalResource;
import org.apache.flink.api.dag.Pipeline;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.configuration.SecurityOptions;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.core.fs.Path;
import org.apache.flink.core.memory.ManagedMemoryUseCase;
import org.apache.flink.runtime.clusterframework.types.ResourceProfile;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Places a job: finds out where its steps shall run, and pins them there. */
final class Placing {
  private static final Logger LOG = LoggerFactory.getLogger(Placing.class);
  private static final int TOLD = 8;
  private static final Duration PATIENCE = Duration.ofSeconds(10);
  // Flink wants both given; they are drawn from an account and do not limit anything.
  private static final double CPU_CORES = 0.01;
  private static final int HEAP_MB = 1;
  private static final MemorySize MANAGED = MemorySize.ofMebiBytes(64);

  private Placing() {}

  /** Pin a job, unless it shall run unpinned. */
  static void place(Pipeline pipeline, Configuration configuration) {
    if (!(pipeline instanceof StreamGraph)) {
      return;
    }
    long begin = System.nanoTime();
    StreamGraph graph = (StreamGraph) pipeline;
    String onError = configuration.get(Settings.ON_ERROR);
    if (!onError.equals("fail") && !onError.equals("unpinned")) {
      throw new Refusal(
          Settings.ON_ERROR.key() + ": " + onError + ": expected fail or unpinned");
    }
    Placement placement = null;
    Shape shape = Shape.of(graph, Mapping.none(), Set.of(), Map.of());
    try {
      Mapping mapping =
          configuration.get(Settings.MAPPING) == null
              ? Mapping.none()
              : Mapping.read(configuration.get(Settings.MAPPING));
      String file = configuration.get(Settings.PLAN);
      PlanReader plan = null;
      if (file != null && !file.equals("none")) {
        plan = new PlanReader(Documents.read(Settings.PLAN.key(), file), file);
      }
      Map<Integer, Partitions.Part> parts = Partitions.divide(graph, mapping);
      shape = Shape.of(graph, mapping, plan == null ? Set.of() : plan.sources(), parts);
      ObjectNode problem = problem(shape, configuration, plan == null);
      if (plan == null && !"none".equals(file)) {
        plan = asked(configuration, problem);
      }
      if (plan != null) {
        placement = plan.placement(shape);
        check(shape, placement, configuration);
      }
    } catch (Refusal refusal) {
      if (onError.equals("fail")) {
        throw refusal;
      }
      say(refusal.getMessage() + "; the job runs unpinned");
      placement = null;
    }
    apply(shape, placement, configuration);
    LOG.info("Nova: {} took {} ms", graph.getJobName(), (System.nanoTime() - begin) / 1_000_000);
  }

  private static PlanReader asked(Configuration configuration, ObjectNode problem) {
    if (configuration.get(Settings.SERVICE) == null) {
      throw new Refusal(
          Settings.PLAN.key() + " and " + Settings.SERVICE.key() + ": neither is set in Flink's"
              + " configuration; give one (" + Settings.PLAN.key() + ": none runs jobs unpinned)");
    }
    return new PlanReader(
        new Service(configuration)
            .plan(
                problem,
                configuration.get(Settings.STRATEGY),
                configuration.get(Settings.PARAMETERS)),
        configuration.get(Settings.SERVICE));
  }

  /** The job as a problem, where it is needed; written down where that is asked for. */
  private static ObjectNode problem(Shape shape, Configuration configuration, boolean noPlan) {
    String file = configuration.get(Settings.PROBLEM_FILE);
    boolean ask = noPlan && configuration.get(Settings.SERVICE) != null
        && configuration.get(Settings.PLAN) == null;
    if (file == null && !ask) {
      return null;
    }
    String nodes = configuration.get(Settings.NODES);
    if (nodes == null) {
      throw new Refusal(Settings.NODES.key() + ": is not set: where may jobs run?");
    }
    ObjectNode from =
        new File(nodes).isFile() || configuration.get(Settings.SERVICE) == null
            ? Documents.read(Settings.NODES.key(), nodes)
            : new Service(configuration).problem(nodes);
    ObjectNode problem = ProblemWriter.write(shape, shape.graph.getJobName(), from, nodes, ask);
    if (file != null) {
      Documents.write(Settings.PROBLEM_FILE.key(), file, problem);
    }
    return problem;
  }

  /** Refuse what the cluster has no room for, before anything is sent. */
  private static void check(Shape shape, Placement placement, Configuration configuration) {
    boolean remote = "remote".equals(configuration.get(Settings.TARGET));
    if (!remote
        || !configuration.get(Settings.CHECK)
        || SecurityOptions.isRestSSLEnabled(configuration)) {
      return;
    }
    String url =
        "http://" + configuration.get(RestOptions.ADDRESS) + ":"
            + configuration.get(RestOptions.PORT);
    Map<String, Double> free = new HashMap<>();
    Map<String, Double> total = new HashMap<>();
    for (JsonNode one : taskManagers(url)) {
      add(free, one.path("freeResource"));
      add(total, one.path("totalResource"));
    }
    for (Map.Entry<String, Integer> each : slots(shape, placement).entrySet()) {
      String resource = Names.resource(each.getKey());
      if (!total.containsKey(resource)) {
        throw new Refusal(
            placement.origin + ": node " + each.getKey() + ": no TaskManager of " + url
                + " offers the external resource " + resource);
      }
      if (free.getOrDefault(resource, 0.0) < each.getValue()) {
        throw new Refusal(
            placement.origin + ": node " + each.getKey() + ": its TaskManager has "
                + Math.round(free.getOrDefault(resource, 0.0)) + " slots free, and the job needs "
                + each.getValue() + " there");
      }
    }
  }

  private static JsonNode taskManagers(String url) {
    try {
      HttpResponse<String> answer =
          HttpClient.newBuilder()
              .connectTimeout(PATIENCE)
              .build()
              .send(
                  HttpRequest.newBuilder(URI.create(url + "/taskmanagers"))
                      .timeout(PATIENCE)
                      .build(),
                  HttpResponse.BodyHandlers.ofString());
      return Documents.JSON.readTree(answer.body()).path("taskmanagers");
    } catch (IOException | IllegalArgumentException error) {
      throw new Refusal(
          url + ": no answer from Flink's JobManager (" + Documents.line("" + error.getMessage())
              + "); is the cluster up?");
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new Refusal(url + ": interrupted while asking for TaskManagers");
    }
  }

  private static void add(Map<String, Double> sums, JsonNode resource) {
    JsonNode extended = resource.path("extendedResources");
    for (String name : Documents.names(extended)) {
      sums.merge(name, extended.get(name).asDouble(), Double::sum);
    }
  }

  /** How many slots each node has to give: operators of a node share them. */
  private static Map<String, Integer> slots(Shape shape, Placement placement) {
    Map<String, Integer> needed = new LinkedHashMap<>();
    for (Step step : shape.steps) {
      for (StreamNode one : step.members) {
        needed.merge(placement.nodes.get(step), one.getParallelism(), Math::max);
      }
    }
    placement.cuts.forEach(
        (step, instances) ->
            instances.forEach(
                one -> needed.merge(one.node, step.head.getParallelism(), Math::max)));
    return needed;
  }

  private static void apply(Shape shape, Placement placement, Configuration configuration) {
    StreamGraph graph = shape.graph;
    if (configuration.get(Settings.OPERATOR_IDS)) {
      identify(shape);
    }
    Map<StreamNode, String> at = new LinkedHashMap<>();
    Map<StreamNode, String> ids = new LinkedHashMap<>();
    for (Step step : shape.steps) {
      for (StreamNode one : step.members) {
        ids.put(one, step.id);
        if (placement != null) {
          at.put(one, placement.nodes.get(step));
        }
      }
    }
    if (placement != null) {
      cut(shape, placement, at, ids);
      pin(graph, at, configuration);
    }
    for (Map.Entry<StreamNode, String> each : ids.entrySet()) {
      describe(each.getKey(), each.getValue(), at.get(each.getKey()));
    }
    if (placement != null && !placement.cuts.isEmpty()) {
      // TaskManagers need the operator that divides inputs.
      Object jar = Placing.class.getProtectionDomain().getCodeSource().getLocation();
      graph.addJar(new Path(jar.toString()));
    }
    if (placement != null) {
      LOG.info("Nova: {} operators pinned to {}", at.size(), new LinkedHashSet<>(at.values()));
    }
  }

  /** Ids that a job built again gives the same operators. */
  private static void identify(Shape shape) {
    Set<String> taken = new HashSet<>();
    for (StreamNode one : shape.graph.getStreamNodes()) {
      taken.add(one.getTransformationUID());
    }
    for (Step step : shape.steps) {
      int number = 0;
      for (StreamNode one : step.members) {
        if (one.getTransformationUID() == null && one.getUserHash() == null) {
          String id = "nova-" + Names.slug(step.name()) + "-" + step.id + "-" + number;
          while (!taken.add(id)) {
            id += "-";
          }
          shape.graph.setTransformationUID(one.getId(), id);
        }
        number++;
      }
    }
  }

  private static void cut(
      Shape shape,
      Placement placement,
      Map<StreamNode, String> at,
      Map<StreamNode, String> ids) {
    StreamGraph graph = shape.graph;
    placement.cuts.forEach(
        (step, instances) -> {
          List<StreamNode> made = Cutting.cut(shape, step, instances);
          // What follows gets what all pieces emit: it runs where that is going.
          for (StreamNode one : step.members) {
            at.put(one, placement.nodes.get(shape.receiver(step)));
          }
          for (int i = 0; i < made.size(); i++) {
            at.put(made.get(i), instances.get(i).node);
            ids.put(made.get(i), step.id + "#" + i);
          }
        });
    // What divides inputs runs with what it gets them from.
    for (StreamNode one : graph.getStreamNodes()) {
      if (!at.containsKey(one)) {
        StreamNode sender = graph.getSourceVertex(one.getInEdges().get(0));
        at.put(one, at.get(sender));
        ids.put(one, ids.get(sender));
      }
    }
  }

  private static void pin(
      StreamGraph graph, Map<StreamNode, String> at, Configuration configuration) {
    Map<String, String> together = new HashMap<>();
    Map<String, ResourceProfile> resources = new HashMap<>();
    Map<String, MemorySize> managed = new HashMap<>();
    at.forEach(
        (one, node) -> {
          String other = together.putIfAbsent("" + one.getCoLocationGroup(), node);
          if (one.getCoLocationGroup() != null && other != null && !other.equals(node)) {
            throw new Refusal(
                one.getOperatorName() + ": the job binds it to operators on " + other
                    + " by a co-location group, and the plan has it on " + node);
          }
          managed.merge(node, managed(one, graph, configuration), MemoryMax::of);
        });
    at.forEach(
        (one, node) -> {
          one.setSlotSharingGroup(Names.group(node));
          resources.put(
              Names.group(node),
              ResourceProfile.newBuilder()
                  .setCpuCores(CPU_CORES)
                  .setTaskHeapMemoryMB(HEAP_MB)
                  .setManagedMemory(managed.get(node))
                  .setExtendedResource(new ExternalResource(Names.resource(node), 1.0))
                  .build());
        });
    graph.setSlotSharingGroupResource(resources);
  }

  private static final class MemoryMax {
    private static MemorySize of(MemorySize one, MemorySize other) {
      return one.compareTo(other) > 0 ? one : other;
    }
  }

  /** Managed memory that an operator's slot must have. */
  private static MemorySize managed(
      StreamNode one, StreamGraph graph, Configuration configuration) {
    MemorySize given = configuration.get(Settings.MANAGED_MEMORY);
    if (given != null) {
      return given;
    }
    Set<ManagedMemoryUseCase> cases = one.getManagedMemorySlotScopeUseCases();
    String backend = graph.getJobConfiguration().get(StateBackendOptions.STATE_BACKEND);
    backend = backend == null ? configuration.get(StateBackendOptions.STATE_BACKEND) : backend;
    boolean embedded = backend != null && !backend.toLowerCase().contains("hashmap");
    boolean state = cases.contains(ManagedMemoryUseCase.STATE_BACKEND) && embedded;
    boolean python = cases.contains(ManagedMemoryUseCase.PYTHON);
    boolean sorts = !one.getManagedMemoryOperatorScopeUseCaseWeights().isEmpty();
    return state || python || sorts ? MANAGED : MemorySize.ZERO;
  }

  /** Write into an operator's description, which Flink's REST interface shows, what it is. */
  private static void describe(StreamNode one, String id, String node) {
    String old = one.getOperatorDescription();
    String where = node == null ? "" : " at=" + Names.group(node).substring("at-".length());
    one.setOperatorDescription(
        (old == null ? one.getOperatorName() : old) + " [nova id=" + id + where + "]");
  }

  static Refusal unmapped(String kind, Step step) {
    String name = Names.plain(step.name());
    return new Refusal(
        kind + " '" + name + "': is nowhere mapped to a node: add it to " + Settings.MAPPING.key()
            + " (" + kind + "s: {\"" + name + "\": NODE}), or nova.node=NODE to its name");
  }

  static String told(Collection<String> names) {
    String first = names.stream().limit(TOLD).collect(Collectors.joining(", "));
    return names.isEmpty() ? "none" : names.size() > TOLD ? first + ", ..." : first;
  }

  /** Tell whoever submits the job. */
  static void say(String message) {
    LOG.warn("nova: {}", message);
    System.err.println("nova: " + message);
  }
}
