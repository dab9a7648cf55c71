package org.apache.spark.sql.nova

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.util.ArrayDeque
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext

import _root_.nova.engines.RealClock
import _root_.nova.engines.query.{Row, RowResults, RowSource, Step, Windows}

/**
 * What passes from stage to stage: a row, or, without one, a mark: everything up to its event time
 * has been sent. `salt` says which task of the next stage gets it.
 */
case class Sent(salt: Long, path: Int, mark: Long, row: Array[Byte])

/**
 * The operators of one task. It lasts as long as its job, in the memory of its executor: a batch goes
 * on where the one before it ended.
 */
private[nova] class QueryTask(job: RowJob, stage: Int, number: Int) {
  private val out = new ArrayDeque[Sent]
  private val own = job.stages(stage).tasks(number)
  private val operators: Map[Int, Operator] = own.map(one => one -> new Operator(one)).toMap
  // Of what is sent on from here, the task of the next stage, as a key to group by.
  private val salts: Array[Long] =
    if (stage + 1 < job.stages.length) Job.salts(job.stages(stage + 1).hosts.length)
    else Array.empty
  private var rows: RowSource = _
  private var ended = false
  private val nobody = Array.empty[Operator]

  /** The operators here that receive what a producer emits, here or elsewhere. */
  private lazy val receivers: Map[Int, Array[Operator]] =
    own
      .flatMap(one => job.operators(one).inputs.distinct.map(_ -> operators(one)))
      .groupMap(_._1)(_._2)

  private def receiversOf(producer: Int): Array[Operator] =
    receivers.getOrElse(producer, nobody)

  /** One operator, with what it has gathered. */
  private class Operator(index: Int) {
    private val planned = job.operators(index)
    private val paths = job.paths.indices.filter(job.paths(_).producer == index).toArray
    private lazy val here = receiversOf(index)
    private var reached = Long.MinValue
    private val marks: java.util.Map[Int, Long] = new java.util.HashMap[Int, Long]
    planned.inputs.foreach(marks.put(_, Long.MinValue))

    private val step: Step = planned.kind match {
      case "filter" | "project" | "cut" | "select" => planned.step
      case _ => null
    }
    private val windows: Windows[_] = planned.kind match {
      case "join" | "aggregate" => planned.windows
      case _ => null
    }
    private val file: RowResults =
      if (planned.kind == "sink") {
        new RowResults(planned.file, job.id, planned.columns, planned.types)
      } else null

    def take(row: Row): Unit =
      if (step != null) {
        val made = step.of(row)
        if (made != null) emit(made)
      } else if (windows != null) windows.add(row)
      else if (file != null) file.add(row, RealClock.nowUs())
      else emit(row)

    def emit(row: Row): Unit = {
      here.foreach(_.take(row))
      if (paths.nonEmpty) {
        val bytes = new ByteArrayOutputStream
        row.write(new DataOutputStream(bytes))
        paths.foreach(path => send(path, 0L, bytes.toByteArray))
      }
    }

    /** A producer will send nothing up to this event time any more. */
    def mark(producer: Int, timeMs: Long): Unit = {
      marks.merge(producer, timeMs, (one, other) => Math.max(one, other))
      var least = Long.MaxValue
      marks.values.forEach(one => least = Math.min(least, one))
      if (least > reached) {
        reached = least
        if (windows != null) windows.reached(least, row => emit(row))
        if (file == null) passed(least)
        else {
          file.complete(least)
          if (least == QueryTask.End) file.finish()
        }
      }
    }

    /** This operator will emit nothing up to this event time any more. */
    def passed(timeMs: Long): Unit = {
      here.foreach(_.mark(index, timeMs))
      paths.foreach(send(_, timeMs, null))
    }

    def close(): Unit = if (file != null) file.close()
  }

  private def send(path: Int, mark: Long, row: Array[Byte]): Unit = {
    val way = job.paths(path)
    out.add(Sent(salts(way.slots(stage - way.stage)), path, mark, row))
  }

  /** Take what has come from the stage before. */
  def take(sent: Sent): Unit = {
    val way = job.paths(sent.path)
    if (stage - way.stage < way.slots.length) send(sent.path, sent.mark, sent.row)
    else if (sent.row == null) receiversOf(way.producer).foreach(_.mark(way.producer, sent.mark))
    else {
      val row = Row.read(new DataInputStream(new ByteArrayInputStream(sent.row)))
      receiversOf(way.producer).foreach(_.take(row))
    }
  }

  /** What is to be sent next; null where there is nothing. */
  def next(): Sent = out.poll()

  /**
   * Of a source: emit what is there.
   *
   * @return for how long nothing will be there, us; -1 where nothing will be any more
   */
  def read(startMs: Long, readings: () => Array[Byte]): Long = {
    if (ended) return -1L
    if (rows == null) rows = job.rows(own.head, readings(), startMs)
    val source = operators(own.head)
    val nowUs = RealClock.nowUs()
    var count = 0
    while (count < QueryTask.AtOnce && rows.more() && rows.waitUs(nowUs) <= 0) {
      val row = rows.next(nowUs)
      if (row != null) source.emit(row)
      count += 1
    }
    if (!rows.more()) {
      source.passed(QueryTask.End)
      ended = true
      rows.close()
      rows = null
      return 0L
    }
    val mark = rows.mark(nowUs)
    if (mark != null) source.passed(mark)
    if (count > 0) 0L else Math.max(0L, Math.min(rows.waitUs(nowUs), rows.stepUs()))
  }

  /** Whether a source has sent everything. */
  def done: Boolean = ended && out.isEmpty

  def close(): Unit = {
    operators.values.foreach(_.close())
    if (rows != null) rows.close()
  }
}

private object QueryTask {
  // Rows that a source emits before it looks at the clock again.
  val AtOnce = 256
  // The last mark.
  val End: Long = Long.MaxValue
}

/** Tasks of the jobs that run in this executor. */
private[nova] object QueryTasks {
  private val BatchId = "streaming.sql.batchId"

  private class Known(val job: RowJob) {
    val tasks = new ConcurrentHashMap[(Int, Int), QueryTask]
  }

  private val jobs = new ConcurrentHashMap[String, Known]

  /** The task that runs now; it is made in its job's first batch, and never again. */
  def of(id: String, text: String, stage: Int): QueryTask = {
    val context = TaskContext.get()
    val number = context.partitionId()
    val known = jobs.computeIfAbsent(id, _ => new Known(RowJob.read(text)))
    val first = context.getLocalProperty(BatchId) == "0" && context.attemptNumber() == 0
    known.tasks.computeIfAbsent(
      (stage, number),
      _ => {
        if (!first) {
          throw new IllegalStateException(
            s"${known.job.stages(stage).name}, task $number: what it had gathered is lost with its" +
              " executor")
        }
        new QueryTask(known.job, stage, number)
      })
  }

  /** Drop what a job has gathered, and close its files. */
  def forget(id: String): Unit = {
    val known = jobs.remove(id)
    if (known != null) known.tasks.values.forEach(_.close())
  }
}
