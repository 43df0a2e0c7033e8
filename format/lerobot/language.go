package lerobot

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// subtaskKey is the stream with the text of the subtask that is active at each row. It is computed
// from the column language_persistent.
const subtaskKey = "subtask"

// describeLanguage adds the stream of subtasks if the data has the language column, unless there is
// a column of that name.
func (d *Dataset) describeLanguage() {
	i, ok := d.byKey[write.LanguagePersistent]
	_, isTaken := d.byKey[subtaskKey]
	if !ok || isTaken || d.About.Features[i].Kind != robocache.KindEvent ||
		d.raw.declaration(subtaskKey) != nil {
		return
	}
	d.addFeature(robocache.Feature{
		Key: subtaskKey, Kind: robocache.KindText, DType: robocache.String, Shape: []int{1},
		Computed: true,
	}, fromLanguage)
}

// activeSubtasks returns the subtask of each row: that with the last timestamp up to the row's, or
// "" if there is none.
func (d *Dataset) activeSubtasks(ctx context.Context, rows []robocache.Row) ([]string, error) {
	lists, err := d.Text(ctx, write.LanguagePersistent, rows)
	if err != nil {
		return nil, err
	}
	c, err := d.columnOf("timestamp", robocache.KindNumeric)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, len(rows)*c.rowBytes)
	if err := d.Gather(ctx, "timestamp", rows, raw); err != nil {
		return nil, err
	}
	times := robocache.Float64s(make([]float64, 0, len(rows)), c.dtype, raw)
	out := make([]string, len(rows))
	var items []write.LanguageItem
	for i, list := range lists {
		if i == 0 || list != lists[i-1] {
			items = nil
			if err := json.Unmarshal([]byte(list), &items); list != "" && err != nil {
				return nil, malformed(robocache.Where{
					"episode": d.episodes.indexAt(rows[i].Episode), "row": rows[i].Index,
					"stream": write.LanguagePersistent,
				}, "a JSON list of objects", fmt.Sprintf("%.80q", list))
			}
		}
		out[i] = write.ActiveText(items, subtaskKey, times[i])
	}
	return out, nil
}
