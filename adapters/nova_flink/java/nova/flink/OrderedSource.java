package nova.flink;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import nova.engines.Orders;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * A source of Flink's, such as a connector's, that takes orders ({@link Orders}): it reads nothing
 * before it is told when to begin, emits only tuples from there on, and ends before the end that it
 * is told. Its tuples have to come in the order of their event times.
 *
 * <p>It has reached the end when a tuple behind it has come: earlier ones may still be on their way.
 */
public final class OrderedSource<S extends SourceSplit, E>
    implements Source<SensorTuple, S, E> {
  private static final long serialVersionUID = 1L;
  private static final long LOOK_MS = 100;

  private final Source<SensorTuple, S, E> source;
  private final int number;
  private final String control;

  /**
   * @param source that emits the tuples, with their event times
   * @param number index into the job's sources
   * @param control directory of orders on the source's host
   */
  public OrderedSource(Source<SensorTuple, S, E> source, int number, String control) {
    this.source = source;
    this.number = number;
    this.control = control;
  }

  @Override
  public Boundedness getBoundedness() {
    return source.getBoundedness();
  }

  @Override
  public SplitEnumerator<S, E> createEnumerator(SplitEnumeratorContext<S> context)
      throws Exception {
    return source.createEnumerator(context);
  }

  @Override
  public SplitEnumerator<S, E> restoreEnumerator(SplitEnumeratorContext<S> context, E state)
      throws Exception {
    return source.restoreEnumerator(context, state);
  }

  @Override
  public SimpleVersionedSerializer<S> getSplitSerializer() {
    return source.getSplitSerializer();
  }

  @Override
  public SimpleVersionedSerializer<E> getEnumeratorCheckpointSerializer() {
    return source.getEnumeratorCheckpointSerializer();
  }

  @Override
  public SourceReader<SensorTuple, S> createReader(SourceReaderContext context) throws Exception {
    String job = context.metricGroup().getAllVariables().get("<job_id>");
    return new Reader<>(source.createReader(context), new Orders(control, job, number));
  }

  private static final class Reader<S extends SourceSplit> implements SourceReader<SensorTuple, S> {
    private final SourceReader<SensorTuple, S> reader;
    private final Orders orders;
    private Output output;
    private long lookMs = Long.MIN_VALUE;
    private long emittedMs = Long.MIN_VALUE;
    // The first tuple that is not before the end: there may still be a later end, or none.
    private SensorTuple held;
    private long heldMs;
    private SourceOutput<SensorTuple> heldFor;

    Reader(SourceReader<SensorTuple, S> reader, Orders orders) {
      this.reader = reader;
      this.orders = orders;
    }

    @Override
    public void start() {
      reader.start();
    }

    @Override
    public InputStatus pollNext(ReaderOutput<SensorTuple> to) throws Exception {
      look();
      if (orders.beginMs() == Orders.NONE) {
        return InputStatus.NOTHING_AVAILABLE;
      }
      if (held != null) {
        if (heldMs >= orders.endMs()) {
          return orders.committed() ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
        }
        emit(held, heldMs, heldFor);
        held = null;
      }
      if (output == null) {
        output = new Output(to);
      }
      return reader.pollNext(output);
    }

    private void look() throws IOException {
      long nowMs = System.currentTimeMillis();
      // Also after a clock was set back.
      if (nowMs >= lookMs || nowMs < lookMs - LOOK_MS) {
        orders.look(emittedMs);
        lookMs = nowMs + LOOK_MS;
      }
    }

    /** Emits a tuple, or keeps it for later; before the begin, drops it. */
    private void take(SensorTuple tuple, long timeMs, SourceOutput<SensorTuple> to) {
      if (timeMs >= orders.endMs()) {
        held = tuple;
        heldMs = timeMs;
        heldFor = to;
      } else if (timeMs >= orders.beginMs()) {
        emit(tuple, timeMs, to);
      }
    }

    private void emit(SensorTuple tuple, long timeMs, SourceOutput<SensorTuple> to) {
      emittedMs = timeMs;
      // By event time: a source that is behind does not see the rate at which it reads.
      orders.arrived(tuple.sequence + 1, timeMs);
      to.collect(tuple, timeMs);
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
      CompletableFuture<Void> look =
          new CompletableFuture<Void>().completeOnTimeout(null, LOOK_MS, TimeUnit.MILLISECONDS);
      if (held != null || orders.beginMs() == Orders.NONE) {
        return look;
      }
      CompletableFuture<Void> more = reader.isAvailable();
      return more.isDone() ? more : CompletableFuture.anyOf(more, look).thenAccept(any -> {});
    }

    @Override
    public List<S> snapshotState(long checkpoint) {
      return reader.snapshotState(checkpoint);
    }

    @Override
    public void addSplits(List<S> splits) {
      reader.addSplits(splits);
    }

    @Override
    public void notifyNoMoreSplits() {
      reader.notifyNoMoreSplits();
    }

    @Override
    public void handleSourceEvents(SourceEvent event) {
      reader.handleSourceEvents(event);
    }

    @Override
    public void close() throws Exception {
      reader.close();
    }

    /** Where the source emits a split's tuples to; none comes without its event time. */
    private class SplitOutput implements SourceOutput<SensorTuple> {
      private final SourceOutput<SensorTuple> to;

      SplitOutput(SourceOutput<SensorTuple> to) {
        this.to = to;
      }

      @Override
      public void collect(SensorTuple tuple) {
        throw new IllegalStateException("a tuple without event time");
      }

      @Override
      public void collect(SensorTuple tuple, long timeMs) {
        take(tuple, timeMs, to);
      }

      @Override
      public void emitWatermark(Watermark watermark) {
        to.emitWatermark(watermark);
      }

      @Override
      public void markIdle() {
        to.markIdle();
      }

      @Override
      public void markActive() {
        to.markActive();
      }
    }

    private final class Output extends SplitOutput implements ReaderOutput<SensorTuple> {
      private final ReaderOutput<SensorTuple> all;

      Output(ReaderOutput<SensorTuple> all) {
        super(all);
        this.all = all;
      }

      @Override
      public SourceOutput<SensorTuple> createOutputForSplit(String split) {
        return new SplitOutput(all.createOutputForSplit(split));
      }

      @Override
      public void releaseOutputForSplit(String split) {
        all.releaseOutputForSplit(split);
      }
    }
  }
}
