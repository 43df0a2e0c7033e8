package write

import (
	"cmp"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// chooseTasks gives the tasks that keep their numbers (C3), and fills in the report's map.
func (c *conversion) chooseTasks() []string {
	tasks := slices.Clone(c.src.Info().Tasks)
	slices.SortStableFunc(tasks, func(a, b robocache.Task) int { return cmp.Compare(a.Index, b.Index) })
	number := map[string]int64{}
	var texts []string
	same := true
	for _, t := range tasks {
		n, ok := number[t.Text]
		if !ok {
			n = int64(len(texts))
			number[t.Text] = n
			texts = append(texts, t.Text)
		}
		same = same && n == t.Index
		c.report.Tasks = append(c.report.Tasks, TaskMap{Old: t.Index, New: n, Text: t.Text})
	}
	if !same {
		sev := robocache.SeverityInfo
		if slices.ContainsFunc(c.features, func(f feature) bool { return strings.HasPrefix(f.Key, "annotation.") }) {
			sev = robocache.SeverityWarning
		}
		c.find(sev, "tasks-renumbered", nil, "task numbers were not 0…n−1, each text once: columns that hold task numbers (annotations) still hold the old ones; see the report's tasks")
	}
	return texts
}
