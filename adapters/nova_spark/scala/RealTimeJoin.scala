package org.apache.spark.sql.nova

import java.io.{BufferedOutputStream, File, FileOutputStream, OutputStream}
import java.nio.{ByteBuffer, ByteOrder}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{Encoder, Encoders, ForeachWriter, SparkSession}
import org.apache.spark.sql.streaming.{
  MapState,
  OutputMode,
  StatefulProcessor,
  StreamingQuery,
  TTLConfig,
  TimeMode,
  TimerValues,
  Trigger,
  ValueState
}
import org.apache.spark.util.CollectionAccumulator

/** As nova_engines.results has it, but for when it arrived. */
case class Result(
    instance: Int,
    left_source: Int,
    right_source: Int,
    window_ms: Long,
    left_sequence: Long,
    right_sequence: Long,
    left_emit_us: Long,
    right_emit_us: Long,
    left_value: Double,
    right_value: Double)

/** Begins of the last windows that tuples have come of, by side. */
case class Reached(left: Long, right: Long)

/**
 * Symmetric join of a key's two sides by window and sequence number modulo `keys`.
 *
 * State is what came of a side, by window and number. A source's tuples come in order, so a window
 * is dropped when both sides are past it.
 */
class Joiner(job: Job) extends StatefulProcessor[Long, Reading, Result] {
  @transient private var tuples: MapState[String, Array[Byte]] = _
  @transient private var reached: ValueState[Reached] = _

  override def init(mode: OutputMode, time: TimeMode): Unit = {
    val handle = getHandle
    tuples = handle.getMapState("tuples", Encoders.STRING, Encoders.BINARY, TTLConfig.NONE)
    reached = handle.getValueState("reached", Encoders.product[Reached], TTLConfig.NONE)
  }

  override def handleInputRows(
      salt: Long,
      rows: Iterator[Reading],
      timers: TimerValues): Iterator[Result] = {
    val found = new ArrayBuffer[Result]
    rows.foreach { one =>
      val window = Math.floorDiv(one.time_ms, job.window_ms) * job.window_ms
      val key = one.sequence % job.keys
      val other = Joiner.slot(window, key, !one.left)
      if (tuples.containsKey(other)) join(one, window, key, tuples.getValue(other), found)
      val own = Joiner.slot(window, key, one.left)
      val before = if (tuples.containsKey(own)) tuples.getValue(own) else Array.emptyByteArray
      tuples.updateValue(own, Joiner.append(before, one))
      forget(one.left, window)
    }
    found.iterator
  }

  private def join(
      one: Reading,
      window: Long,
      key: Long,
      others: Array[Byte],
      found: ArrayBuffer[Result]): Unit = {
    if (key % job.every != 0) return
    val pieces = job.joins(one.join).pieces
    val buffer = ByteBuffer.wrap(others)
    while (buffer.hasRemaining) {
      val source = buffer.getInt
      val part = buffer.getInt
      val sequence = buffer.getLong
      val emitUs = buffer.getLong
      val value = buffer.getDouble
      val (left, right) = if (one.left) (one.part, part) else (part, one.part)
      pieces
        .find(p =>
          p.left_begin <= left && left < p.left_end && p.right_begin <= right &&
            right < p.right_end)
        .foreach { piece =>
          found += (if (one.left)
                      Result(piece.instance, one.source, source, window, one.sequence, sequence,
                        one.emit_us, emitUs, one.value, value)
                    else
                      Result(piece.instance, source, one.source, window, sequence, one.sequence,
                        emitUs, one.emit_us, value, one.value))
        }
    }
  }

  /** Drop what no tuple will match any more, where a side has come to a new window. */
  private def forget(left: Boolean, window: Long): Unit = {
    val before = if (reached.exists()) reached.get() else Reached(Long.MinValue, Long.MinValue)
    val now = if (left) before.copy(left = window) else before.copy(right = window)
    if (now != before) {
      reached.update(now)
      val least = Math.min(now.left, now.right)
      if (least > Math.min(before.left, before.right)) {
        val old = tuples.keys().filter(Joiner.windowOf(_) < least).toArray
        old.foreach(tuples.removeKey)
      }
    }
  }
}

private object Joiner {
  private val TupleBytes = 32

  def slot(window: Long, key: Long, left: Boolean): String =
    s"$window $key ${if (left) "l" else "r"}"

  def windowOf(slot: String): Long = slot.substring(0, slot.indexOf(' ')).toLong

  def append(before: Array[Byte], one: Reading): Array[Byte] = {
    val buffer = ByteBuffer.allocate(before.length + TupleBytes)
    buffer.put(before).putInt(one.source).putInt(one.part).putLong(one.sequence)
    buffer.putLong(one.emit_us).putDouble(one.value).array()
  }
}

/**
 * Writes results as 80-byte records with the time they arrived: a file for each batch, which a
 * batch that is repeated writes anew.
 */
class ResultWriter(directory: String) extends ForeachWriter[Result] {
  @transient private var file: File = _
  @transient private var stream: OutputStream = _
  @transient private var record: ByteBuffer = _

  override def open(partition: Long, epoch: Long): Boolean = {
    new File(directory).mkdirs()
    file = new File(directory, f"$epoch%09d")
    stream = new BufferedOutputStream(new FileOutputStream(file), ResultWriter.Buffer)
    record = ByteBuffer.allocate(ResultWriter.Bytes).order(ByteOrder.LITTLE_ENDIAN)
    true
  }

  override def process(r: Result): Unit = {
    record.clear()
    record.putInt(r.instance).putInt(r.left_source).putInt(r.right_source).putInt(0)
    record.putLong(r.window_ms).putLong(r.left_sequence).putLong(r.right_sequence)
    record.putLong(r.left_emit_us).putLong(r.right_emit_us).putLong(PacedReader.nowUs())
    record.putDouble(r.left_value).putDouble(r.right_value)
    stream.write(record.array())
  }

  override def close(error: Throwable): Unit = if (stream != null) {
    stream.close()
    if (error == null && file.length() == 0) file.delete()
  }
}

private object ResultWriter {
  val Bytes = 80
  // Whole records, so that a file is one at any time.
  val Buffer: Int = 800 * Bytes
}

object RealTimeJoin {

  /** Which parts ran in which of Spark's stages: lines of a name and a number. */
  def stages(seen: CollectionAccumulator[String]): String =
    seen.value.toArray.map(_.toString).distinct.mkString("\n")

  def accumulator(spark: SparkSession): CollectionAccumulator[String] =
    spark.sparkContext.collectionAccumulator[String]("nova stages")

  /** Have a job run: sources, joins and sink are three stages, each task at its host. */
  def start(
      spark: SparkSession,
      text: String,
      results: String,
      checkpoint: String,
      batch: String,
      seen: CollectionAccumulator[String]): StreamingQuery = {
    val job = Job.read(text)
    val salts = job.salts
    implicit val ofReadings: Encoder[Reading] = Encoders.product[Reading]
    implicit val ofResults: Encoder[Result] = Encoders.product[Result]
    implicit val ofKeys: Encoder[Long] = Encoders.scalaLong
    spark.conf.set("spark.sql.shuffle.partitions", job.joins.length.toString)
    val sources = spark.readStream.format(classOf[Sources].getName).option("job", text).load()
    val joined = Located
      .at(sources, Place("source", job.sources.map(_.host).toSeq, seen))
      .as[Reading]
      .groupByKey(one => salts(one.join))
      .transformWithState(new Joiner(job), TimeMode.None(), OutputMode.Update())
    val atJoins = Located.at(joined.toDF(), Place("join", job.joins.map(_.host).toSeq, seen))
    Located
      .at(atJoins.repartition(1), Place("sink", Seq(job.host), seen))
      .as[Result]
      .writeStream
      .foreach(new ResultWriter(results))
      .outputMode("update")
      .option("checkpointLocation", checkpoint)
      .trigger(Trigger.RealTime(batch))
      .start()
  }
}
