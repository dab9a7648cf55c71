package nova.engines.query;

import java.io.Serializable;

/** What is done to every tuple alone: a filter, a projection, or the cut of a consumer's share. */
public final class Step implements Serializable {
  private static final long serialVersionUID = 1L;

  private final Program condition;
  private final Program[] made;
  private final Cut cut;

  /** One of them; the others are null. */
  public Step(Program condition, Program[] made, Cut cut) {
    this.condition = condition;
    this.made = made;
    this.cut = cut;
  }

  /** What becomes of a tuple; null where it does not pass. */
  public Row of(Row row) {
    if (condition != null) {
      return condition.holds(row.fields) ? row : null;
    }
    if (made == null) {
      return cut.of(row);
    }
    Object[] fields = new Object[made.length];
    for (int i = 0; i < fields.length; i++) {
      fields[i] = made[i].of(row.fields);
    }
    return row.with(fields);
  }
}
