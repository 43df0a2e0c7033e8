package quality

// taskShareMetric is the rows of the episode's task ÷ the rows of the set × the number of tasks.
// Unit: none; 1 is a balanced set. Source: class balance. Known failure: tasks that differ only in
// their wording count as several.
var taskShareMetric = metric{
	Metric: Metric{
		Name: "task_share", Group: GroupSet, Worse: 0,
		Summary: "Share of the rows that the task has, times the number of tasks; 1 is balanced.",
		Source:  "class balance",
	},
}

// setBalance fills the column of shares of tasks.
func setBalance(t *Table) {
	rows, total := map[string]float64{}, 0.0
	for i, task := range t.Tasks {
		rows[task] += float64(t.Lengths[i])
		total += float64(t.Lengths[i])
	}
	for i, task := range t.Tasks {
		t.Columns["task_share"][i] = ratio(rows[task]*float64(len(rows)), total)
	}
}
