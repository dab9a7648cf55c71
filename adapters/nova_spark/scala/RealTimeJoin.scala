package org.apache.spark.sql.nova

import java.io.{BufferedOutputStream, File, FileOutputStream, OutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.{DataFrame, Encoder, Encoders, ForeachWriter, SparkSession}
import org.apache.spark.sql.functions.{col, element_at, typedLit}
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

/** A pair as nova_engines.results has it, but for when it arrived. */
case class Result(
    instance: Int,
    left_source: Int,
    right_source: Int,
    waited_us: Int,
    window_ms: Long,
    left_sequence: Long,
    right_sequence: Long,
    left_emit_us: Long,
    right_emit_us: Long,
    left_value: Double,
    right_value: Double)

/** Begins of the last windows that tuples have come of, by path. */
case class Reached(windows: Seq[Long])

/** What is kept of a tuple until its window ends. */
private class Kept(
    val path: Int,
    val source: Int,
    val waitedUs: Int,
    val sequence: Long,
    val emitUs: Long,
    val value: Double)

/**
 * Symmetric join of a group's two sides by window and sequence number modulo `keys`.
 *
 * State is what came of a side, by window and number. Tuples of a path come in order, so a window
 * is dropped when all paths of the group are past it.
 */
class Joiner(job: Job) extends StatefulProcessor[Long, Reading, Result] {
  @transient private var tuples: MapState[String, Array[Byte]] = _
  @transient private var reached: ValueState[Reached] = _
  // Of the one key that a task has; null until it is read.
  @transient private var windows: Array[Long] = _

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
      val left = job.paths(one.path).left
      val window = Math.floorDiv(one.time_ms, job.window_ms) * job.window_ms
      val key = one.sequence % job.keys
      val other = Joiner.slot(window, key, !left)
      if (tuples.containsKey(other)) join(one, left, window, tuples.getValue(other), found)
      val own = Joiner.slot(window, key, left)
      val before = if (tuples.containsKey(own)) tuples.getValue(own) else Array.emptyByteArray
      tuples.updateValue(own, Joiner.append(before, one))
      forget(one.path, window)
    }
    found.iterator
  }

  private def join(
      reading: Reading,
      left: Boolean,
      window: Long,
      others: Array[Byte],
      found: ArrayBuffer[Result]): Unit = {
    if (reading.sequence % job.keys % job.every != 0) return
    val own = new Kept(
      reading.path,
      reading.source,
      reading.waited_us,
      reading.sequence,
      reading.emit_us,
      reading.value)
    val place = Share.place(own.sequence)
    val pieces = job.groups(job.paths(own.path).group).pieces.filter { p =>
      if (left) p.left.contains(own.path) && Share.holds(place, p.left_low, p.left_high)
      else p.right.contains(own.path) && Share.holds(place, p.right_low, p.right_high)
    }
    val buffer = ByteBuffer.wrap(others)
    while (pieces.nonEmpty && buffer.hasRemaining) {
      val other = Joiner.next(buffer)
      val at = Share.place(other.sequence)
      pieces
        .find { p =>
          if (left) p.right.contains(other.path) && Share.holds(at, p.right_low, p.right_high)
          else p.left.contains(other.path) && Share.holds(at, p.left_low, p.left_high)
        }
        .foreach { p =>
          val (l, r) = if (left) (own, other) else (other, own)
          val taken = Math.min(l.emitUs + l.waitedUs, r.emitUs + r.waitedUs)
          val waited = (taken - Math.min(l.emitUs, r.emitUs)).toInt
          found += Result(p.instance, l.source, r.source, waited, window, l.sequence, r.sequence,
            l.emitUs, r.emitUs, l.value, r.value)
        }
    }
  }

  /** Drop what no tuple will match any more, where a path has come to a new window. */
  private def forget(path: Int, window: Long): Unit = {
    val paths = job.groups(job.paths(path).group).paths
    if (windows == null) {
      windows =
        if (reached.exists()) reached.get().windows.toArray
        else Array.fill(paths.length)(Long.MinValue)
    }
    val index = paths.indexOf(path)
    if (windows(index) != window) {
      val before = windows.min
      windows(index) = window
      reached.update(Reached(windows.toSeq))
      val least = windows.min
      if (least > before) {
        val old = tuples.keys().filter(Joiner.windowOf(_) < least).toArray
        old.foreach(tuples.removeKey)
      }
    }
  }
}

private object Joiner {
  private val TupleBytes = 36

  def slot(window: Long, key: Long, left: Boolean): String =
    s"$window $key ${if (left) "l" else "r"}"

  def windowOf(slot: String): Long = slot.substring(0, slot.indexOf(' ')).toLong

  def append(before: Array[Byte], one: Reading): Array[Byte] = {
    val buffer = ByteBuffer.allocate(before.length + TupleBytes)
    buffer.put(before).putInt(one.path).putInt(one.source).putInt(one.waited_us)
    buffer.putLong(one.sequence).putLong(one.emit_us).putDouble(one.value).array()
  }

  def next(buffer: ByteBuffer): Kept =
    new Kept(
      buffer.getInt,
      buffer.getInt,
      buffer.getInt,
      buffer.getLong,
      buffer.getLong,
      buffer.getDouble)
}

/**
 * Writes results as 80-byte records with the time they arrived: a file for each batch, which a
 * batch that is repeated writes anew, with its fields beside it.
 */
class ResultWriter(directory: String) extends ForeachWriter[Result] {
  @transient private var file: File = _
  @transient private var stream: OutputStream = _
  @transient private var record: ByteBuffer = _

  override def open(partition: Long, epoch: Long): Boolean = {
    new File(directory).mkdirs()
    file = new File(directory, f"$epoch%09d")
    Files.writeString(fields, ResultWriter.Fields)
    stream = new BufferedOutputStream(new FileOutputStream(file), ResultWriter.Buffer)
    record = ByteBuffer.allocate(ResultWriter.Bytes).order(ByteOrder.LITTLE_ENDIAN)
    true
  }

  override def process(r: Result): Unit = {
    record.clear()
    record.putInt(r.instance).putInt(r.waited_us)
    record.putLong(r.window_ms).putLong(TupleReader.nowUs())
    record.putInt(r.left_source).putInt(r.right_source)
    record.putLong(r.left_sequence).putLong(r.right_sequence)
    record.putLong(r.left_emit_us).putLong(r.right_emit_us)
    record.putDouble(r.left_value).putDouble(r.right_value)
    stream.write(record.array())
  }

  override def close(error: Throwable): Unit = if (stream != null) {
    stream.close()
    if (error == null && file.length() == 0) {
      file.delete()
      Files.delete(fields)
    }
  }

  private def fields: Path = Path.of(s"$file.fields")
}

private object ResultWriter {
  val Bytes = 80
  // Whole records, so that a file is one at any time.
  val Buffer: Int = 800 * Bytes
  // As nova_engines.results.PAIR.
  val Fields: String =
    """[["instance", "i4"], ["waited_us", "i4"], ["time_ms", "i8"], ["arrive_us", "i8"],
      | ["left_source", "i4"], ["right_source", "i4"],
      | ["left_sequence", "i8"], ["right_sequence", "i8"],
      | ["left_emit_us", "i8"], ["right_emit_us", "i8"],
      | ["left_value", "f8"], ["right_value", "f8"]]
      |""".stripMargin
}

object RealTimeJoin {

  /** Which parts ran in which of Spark's stages: lines of a name and a number. */
  def stages(seen: CollectionAccumulator[String]): String =
    seen.value.toArray.map(_.toString).distinct.mkString("\n")

  def accumulator(spark: SparkSession): CollectionAccumulator[String] =
    spark.sparkContext.collectionAccumulator[String]("nova stages")

  /** Have a job run: sources, joins, sink and each hop between are a stage, each task at its host. */
  def start(
      spark: SparkSession,
      text: String,
      results: String,
      checkpoint: String,
      batch: String,
      seen: CollectionAccumulator[String]): StreamingQuery = {
    val job = Job.read(text)
    val salts = Job.salts(job.groups.length)
    val groups = job.paths.map(_.group)
    implicit val ofReadings: Encoder[Reading] = Encoders.product[Reading]
    implicit val ofResults: Encoder[Result] = Encoders.product[Result]
    implicit val ofKeys: Encoder[Long] = Encoders.scalaLong
    spark.conf.set("spark.sql.shuffle.partitions", job.groups.length.toString)

    def passed(frame: DataFrame, hop: Hop, by: String): DataFrame = {
      val salts = Job.salts(hop.hosts.length)
      val slot = element_at(typedLit(hop.slots.map(salts(_)).toSeq), col(by) + 1)
      val there = frame.repartition(hop.hosts.length, slot)
      Located.at(there, Place(hop.name, hop.hosts.toSeq, Some(seen)))
    }

    val sources = spark.readStream.format(classOf[Sources].getName).option("job", text).load()
    val sent = Located.at(sources, Place("source", job.sources.map(_.host).toSeq, Some(seen)))
    val joined = job.inputs
      .foldLeft(sent)(passed(_, _, "path"))
      .as[Reading]
      .groupByKey(one => salts(groups(one.path)))
      .transformWithState(new Joiner(job), TimeMode.None(), OutputMode.Update())
    val atJoins = Located.at(joined.toDF(), Place("join", job.groups.map(_.host).toSeq, Some(seen)))
    val arriving = job.results.foldLeft(atJoins)(passed(_, _, "instance"))
    Located
      .at(arriving.repartition(1), Place("sink", Seq(job.host), Some(seen)))
      .as[Result]
      .writeStream
      .foreach(new ResultWriter(results))
      .outputMode("update")
      .option("checkpointLocation", checkpoint)
      .trigger(Trigger.RealTime(batch))
      .start()
  }
}
