package words;

import java.util.HashMap;
import java.util.Map;
import org.apache.storm.Config;
import org.apache.storm.StormSubmitter;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.topology.base.BaseWindowedBolt;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;
import org.apache.storm.utils.Utils;
import org.apache.storm.windowing.TupleWindow;

/** Topologies as anybody writes them: they know Storm and nothing else. */
public final class Words {
  /** Emits numbered sentences, and again what is not acknowledged. */
  public static final class Sentences extends BaseRichSpout {
    private SpoutOutputCollector collector;
    private long number;

    @Override
    public void open(Map<String, Object> conf, TopologyContext context, SpoutOutputCollector out) {
      collector = out;
    }

    @Override
    public void nextTuple() {
      Utils.sleep(50);
      collector.emit(new Values(number % 7, "the cow jumped over the moon"), number++);
    }

    @Override
    public void fail(Object id) {
      collector.emit(new Values((Long) id % 7, "the cow jumped over the moon"), id);
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key", "text"));
    }
  }

  /** Words of a sentence. */
  public static final class Split extends BaseBasicBolt {
    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      for (String word : tuple.getStringByField("text").split(" ")) {
        collector.emit(new Values(word));
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("word"));
    }
  }

  /** Counts words. */
  public static final class Count extends BaseBasicBolt {
    private final Map<String, Integer> counts = new HashMap<>();

    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {
      String word = tuple.getStringByField("word");
      collector.emit(new Values(word, counts.merge(word, 1, Integer::sum)));
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("word", "count"));
    }
  }

  /** Takes what comes. */
  public static final class Report extends BaseBasicBolt {
    @Override
    public void execute(Tuple tuple, BasicOutputCollector collector) {}

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {}
  }

  /** Joins two streams by key within a window. */
  public static final class Join extends BaseWindowedBolt {
    private OutputCollector collector;

    @Override
    public void prepare(Map<String, Object> conf, TopologyContext context, OutputCollector out) {
      collector = out;
    }

    @Override
    public void execute(TupleWindow window) {
      for (Tuple left : window.get()) {
        for (Tuple right : window.get()) {
          boolean sides =
              left.getSourceComponent().equals("left") && right.getSourceComponent().equals("right");
          if (sides && left.getValue(0).equals(right.getValue(0))) {
            collector.emit(new Values(left.getValue(0)));
          }
        }
      }
    }

    @Override
    public void declareOutputFields(OutputFieldsDeclarer declarer) {
      declarer.declare(new Fields("key"));
    }
  }

  private Words() {}

  public static void main(String[] arguments) throws Exception {
    TopologyBuilder builder = new TopologyBuilder();
    if (arguments[0].equals("count")) {
      builder.setSpout("sentences", new Sentences());
      builder.setBolt("split", new Split(), 2).shuffleGrouping("sentences");
      builder.setBolt("count", new Count(), 2).fieldsGrouping("split", new Fields("word"));
      builder.setBolt("report", new Report()).globalGrouping("count");
    } else {
      builder.setSpout("left", new Sentences());
      builder.setSpout("right", new Sentences());
      builder
          .setBolt("join", new Join().withTumblingWindow(BaseWindowedBolt.Duration.seconds(1)))
          .fieldsGrouping("left", new Fields("key"))
          .fieldsGrouping("right", new Fields("key"));
      builder.setBolt("report", new Report()).globalGrouping("join");
    }
    Config conf = new Config();
    conf.setNumAckers(1);
    StormSubmitter.submitTopology(arguments[0], conf, builder.createTopology());
  }
}
