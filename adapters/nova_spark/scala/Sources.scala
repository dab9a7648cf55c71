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

/** A tuple on its way to one side of a join. */
case class Reading(
    join: Int,
    left: Boolean,
    source: Int,
    sequence: Long,
    time_ms: Long,
    emit_us: Long,
    value: Double,
    part: Int)

/**
 * All sources of a job, one partition each, which emit tuple k when it is due: k/rate after the
 * start, or as soon after as they can. A tuple goes to each join that gets its partition.
 *
 * A source counts positions: tuple k has position k times the number of its outputs, and one more
 * for each output.
 */
class Sources extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = Sources.schema
  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: JavaMap[String, String]): Table = new SourcesTable
}

object Sources {
  val schema: StructType = Encoders.product[Reading].schema
}

private class SourcesTable extends Table with SupportsRead {
  override def name(): String = "nova"
  override def schema(): StructType = Sources.schema
  override def capabilities(): JavaSet[TableCapability] =
    EnumSet.of(TableCapability.MICRO_BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder =
    new SourcesScan(Job.read(options.get("job")))
}

private class SourcesScan(job: Job) extends ScanBuilder with Scan {
  override def build(): Scan = this
  override def readSchema(): StructType = Sources.schema
  override def toMicroBatchStream(checkpoint: String): MicroBatchStream = new SourcesStream(job)
}

private class Positions(val next: Array[Long]) extends Offset {
  override def json(): String = next.mkString(",")
}

private case class Position(index: Int, next: Long) extends PartitionOffset

private case class Span(index: Int, source: Origin, startMs: Long, from: Long)
    extends InputPartition

private class SourcesStream(job: Job) extends MicroBatchStream with SupportsRealTimeMode {
  override def initialOffset(): Offset = new Positions(new Array[Long](job.sources.length))
  override def latestOffset(): Offset = initialOffset()
  override def deserializeOffset(json: String): Offset =
    new Positions(json.split(',').map(_.toLong))
  override def commit(end: Offset): Unit = {}
  override def stop(): Unit = {}
  override def createReaderFactory(): PartitionReaderFactory = PacedReaders

  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    throw new UnsupportedOperationException("real-time mode only")

  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    val (next, startMs) = (start.asInstanceOf[Positions].next, Progress.startMs(job.id))
    job.sources.zipWithIndex.map { case (one, i) => Span(i, one, startMs, next(i)) }
  }

  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = {
    val next = new Array[Long](job.sources.length)
    offsets.foreach { case Position(index, reached) => next(index) = reached }
    Progress.reached(job.id, next)
    new Positions(next)
  }
}

private object PacedReaders extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new PacedReader(partition.asInstanceOf[Span])
}

private class PacedReader(span: Span) extends SupportsRealTimeRead[InternalRow] {
  private val source = span.source
  private val outputs = source.outputs
  private val last = if (source.count < 0) Long.MaxValue else source.count * outputs.length
  private var position = span.from
  private var row: InternalRow = _

  override def nextWithTimeout(timeoutMs: java.lang.Long): RecordStatus = {
    val until = System.nanoTime() + timeoutMs * 1000000L
    while (true) {
      val wait = if (span.startMs > 0 && position < last) sinceDueUs() else Long.MinValue
      if (wait >= 0) {
        if (emit()) return RecordStatus.newStatusWithoutArrivalTime(true)
      } else {
        val left = until - System.nanoTime()
        if (left <= 0) return RecordStatus.newStatusWithoutArrivalTime(false)
        val needed = if (wait == Long.MinValue) left else -wait * 1000L
        LockSupport.parkNanos(Math.min(left, needed))
        if (Thread.interrupted()) throw new InterruptedException
      }
    }
    throw new IllegalStateException
  }

  /** How long the next tuple has been due. */
  private def sinceDueUs(): Long =
    PacedReader.nowUs() - (span.startMs * 1000L + dueUs(position / outputs.length))

  private def dueUs(sequence: Long): Long = Math.floor(sequence * 1e6 / source.rate).toLong

  /** Take one step; whether there is a row, or the output does not get this tuple. */
  private def emit(): Boolean = {
    val sequence = position / outputs.length
    val output = outputs((position % outputs.length).toInt)
    position += 1
    val part = PacedReader.partition(sequence, output.reached)
    if (!output.passes(part)) return false
    row = InternalRow(
      output.join,
      output.left,
      source.number,
      sequence,
      span.startMs + dueUs(sequence) / 1000,
      PacedReader.nowUs(),
      source.values((sequence % source.values.length).toInt),
      part)
    true
  }

  override def next(): Boolean = nextWithTimeout(0L).hasRecord
  override def get(): InternalRow = row
  override def getOffset: PartitionOffset = Position(span.index, position)
  override def close(): Unit = {}
}

private object PacedReader {
  private val Step = 0x9E3779B97F4A7C15L
  private val Unit = 1.0 / (1L << 53)

  /** By the rule sequence-share: the first partition whose end lies above u. */
  def partition(sequence: Long, reached: Array[Double]): Int = {
    val u = ((sequence * Step) >>> 11) * Unit
    var found = 0
    while (found < reached.length - 1 && reached(found) <= u) found += 1
    found
  }

  def nowUs(): Long = {
    val now = java.time.Instant.now()
    now.getEpochSecond * 1000000L + now.getNano / 1000
  }
}
