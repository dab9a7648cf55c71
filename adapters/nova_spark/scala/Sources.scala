package org.apache.spark.sql.nova

import java.util.{EnumSet, Map => JavaMap, Set => JavaSet}
import java.util.concurrent.locks.LockSupport

import org.apache.spark.sql.Encoders
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.{
  InputPartition,
  PartitionReader,
  PartitionReaderFactory,
  Scan,
  ScanBuilder
}
import org.apache.spark.sql.connector.read.streaming.{
  MicroBatchStream,
  Offset,
  PartitionOffset,
  SupportsRealTimeMode,
  SupportsRealTimeRead
}
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A tuple on its way to one side of a group of joins. */
case class Reading(
    path: Int,
    source: Int,
    sequence: Long,
    time_ms: Long,
    emit_us: Long,
    waited_us: Int,
    value: Double)

/**
 * All sources of a job, one partition each. A tuple goes on each path that takes it.
 *
 * A source counts positions: tuple k has position k times the number of its outputs, and one more
 * for each output.
 */
class Sources extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = Sources.schema
  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table =
    new SourcesTable(schema, text => new PairSources(Job.read(text)))
}

object Sources {
  val schema: StructType = Encoders.product[Reading].schema
}

/** What Spark reads a job's sources by; the option `job` has the job. */
private[nova] class SourcesTable(rows: StructType, stream: String => MicroBatchStream)
    extends Table
    with SupportsRead {
  override def name(): String = "nova"
  override def schema(): StructType = rows
  override def capabilities(): JavaSet[TableCapability] =
    EnumSet.of(TableCapability.MICRO_BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new SourcesScan(rows, () => stream(options.get("job")))
}

private class SourcesScan(rows: StructType, stream: () => MicroBatchStream)
    extends ScanBuilder
    with Scan {
  override def build(): Scan = this
  override def readSchema(): StructType = rows
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = stream()
}

private class Positions(val next: Array[Long]) extends Offset {
  override def json(): String = next.mkString(",")
}

private[nova] case class Position(index: Int, next: Long) extends PartitionOffset

/** A job's sources, a partition each; a position says how far one has come. */
abstract private[nova] class SourcesStream(job: String, count: Int)
    extends MicroBatchStream
    with SupportsRealTimeMode {

  /** What a source is to emit in a batch. */
  protected def span(index: Int, startMs: Long, from: Long): InputPartition

  override def initialOffset(): Offset = new Positions(new Array[Long](count))
  override def latestOffset(): Offset = initialOffset()
  override def deserializeOffset(json: String): Offset =
    new Positions(json.split(',').map(_.toLong))
  override def commit(end: Offset): Unit = {}
  override def stop(): Unit = {}

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    throw new UnsupportedOperationException("real-time mode only")

  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    val (next, startMs) = (start.asInstanceOf[Positions].next, Progress.startMs(job))
    Array.tabulate(count)(i => span(i, startMs, next(i)))
  }

  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = {
    val next = new Array[Long](count)
    offsets.foreach { case Position(index, reached) => next(index) = reached }
    Progress.reached(job, next)
    new Positions(next)
  }
}

private case class Span(index: Int, source: Origin, startMs: Long, from: Long)
    extends InputPartition

private class PairSources(job: Job) extends SourcesStream(job.id, job.sources.length) {
  override def createReaderFactory(): PartitionReaderFactory = Readers
  override protected def span(index: Int, startMs: Long, from: Long): InputPartition =
    Span(index, job.sources(index), startMs, from)
}

private object Readers extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val span = partition.asInstanceOf[Span]
    if (span.source.topic.isEmpty) new PacedReader(span) else kafka(span)
  }

  /** By name: Kafka's client is not there where nothing reads from it. */
  private def kafka(span: Span): TupleReader =
    Class
      .forName("org.apache.spark.sql.nova.KafkaReader")
      .getDeclaredConstructor(classOf[Span])
      .newInstance(span)
      .asInstanceOf[TupleReader]
}

/** A source's next tuple; what is no tuple has no sequence number. */
private class Next(
    val number: Long,
    val sequence: Long,
    val timeMs: Long,
    val emitUs: Long,
    val waitedUs: Int,
    val value: Double) {
  val place: Double = Share.place(sequence)
}

/** Hands on each tuple of a source to each of its outputs that takes it. */
abstract private class TupleReader(span: Span) extends SupportsRealTimeRead[InternalRow] {
  protected val source: Origin = span.source
  private val outputs = source.outputs
  private val last = if (source.count < 0) Long.MaxValue else source.count * outputs.length
  private var position = span.from
  private var held: Next = _
  private var row: InternalRow = _

  /** Wait for a tuple, until then at most, in ns of System.nanoTime; null where it has not come. */
  protected def await(number: Long, untilNs: Long): Next

  override def nextWithTimeout(timeoutMs: java.lang.Long): RecordStatus = {
    val until = System.nanoTime() + timeoutMs * 1000000L
    while (span.startMs > 0 && position < last) {
      val number = position / outputs.length
      if (held == null || held.number != number) held = await(number, until)
      if (held == null) return RecordStatus.newStatusWithoutArrivalTime(false)
      val output = outputs((position % outputs.length).toInt)
      position += 1
      if (held.sequence >= 0 && Share.holds(held.place, output.low, output.high)) {
        row = InternalRow(
          output.path,
          source.number,
          held.sequence,
          held.timeMs,
          held.emitUs,
          held.waitedUs,
          held.value)
        return RecordStatus.newStatusWithoutArrivalTime(true)
      }
    }
    TupleReader.pause(until)
    RecordStatus.newStatusWithoutArrivalTime(false)
  }

  override def next(): Boolean = nextWithTimeout(0L).hasRecord
  override def get(): InternalRow = row
  override def getOffset: PartitionOffset = Position(span.index, position)
  override def close(): Unit = {}
}

private object TupleReader {
  def pause(untilNs: Long): Unit = {
    var left = untilNs - System.nanoTime()
    while (left > 0) {
      LockSupport.parkNanos(left)
      if (Thread.interrupted()) throw new InterruptedException
      left = untilNs - System.nanoTime()
    }
  }

  def nowUs(): Long = {
    val now = java.time.Instant.now()
    now.getEpochSecond * 1000000L + now.getNano / 1000
  }
}

/** Emits tuple k when it is due: k/rate after the start, or as soon after as it can. */
private class PacedReader(span: Span) extends TupleReader(span) {
  override protected def await(number: Long, untilNs: Long): Next = {
    val dueUs = Math.floor(number * 1e6 / source.rate).toLong
    val wait = span.startMs * 1000L + dueUs - TupleReader.nowUs()
    if (wait > 0) {
      val due = System.nanoTime() + wait * 1000L
      TupleReader.pause(Math.min(due, untilNs))
      if (due > untilNs) return null
    }
    new Next(
      number,
      number,
      span.startMs + dueUs / 1000,
      TupleReader.nowUs(),
      0,
      source.values((number % source.values.length).toInt))
  }
}
