package nova.flink.plugin;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.streaming.api.graph.StreamNode;

/** Operators of a job that are placed together. */
final class Step {
  /** What it is to a plan. */
  enum Kind {
    SOURCE,
    /** Receives from one other step. */
    SINGLE,
    /** Receives from several, and pairs what it receives. */
    JOIN,
    /** Receives from several as if they were one. */
    UNION,
    /** Passes on its first input; another one tells it how. */
    CONNECT,
    SINK
  }

  final Kind kind;
  final StreamNode head;
  final List<StreamNode> members = new ArrayList<>();
  final Set<Step> inputs = new LinkedHashSet<>();

  /** Unique in the job, and the same whenever it is built. */
  String id;

  /** What a mapping or plan calls it; its id where neither does. */
  String key;

  Mapping.Entry said;

  /** Tuples emitted per tuple received; of a join, per tuple of the slower input. */
  double selectivity = 1;

  /** What it reads of a source that is read on several nodes; null of all others. */
  Partitions.Part part;

  /** What a problem calls what it emits: of parts of a source the same. */
  String stream;

  Step(Kind kind, StreamNode head) {
    this.kind = kind;
    this.head = head;
  }

  String name() {
    return head.getOperatorName();
  }

  /** Where a mapping says something of it. */
  String section() {
    return kind == Kind.SOURCE
        ? Mapping.SOURCES
        : kind == Kind.SINK ? Mapping.SINKS : Mapping.OPERATORS;
  }

  /** The node that the job itself or the mapping names; null when neither does. */
  String wanted() {
    if (part != null) {
      return part.node;
    }
    for (StreamNode one : members) {
      String node = Names.annotated(one.getOperatorName());
      if (node != null) {
        return node;
      }
    }
    return said == null ? null : said.node;
  }

  /** Number of its first operator, or of the one that is a copy of. */
  int origin() {
    return part == null ? head.getId() : part.origin;
  }

  /** Sources whose tuples, or what is made of them, it receives. */
  Set<Step> sources() {
    Set<Step> found = new LinkedHashSet<>();
    if (kind == Kind.SOURCE) {
      found.add(this);
    }
    for (Step input : inputs) {
      found.addAll(input.sources());
    }
    return found;
  }

  /** All that comes before it, and itself. */
  void gather(Set<Step> found) {
    for (Step input : inputs) {
      input.gather(found);
    }
    found.add(this);
  }

  @Override
  public String toString() {
    return id;
  }
}
