package rlds

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/store"
)

// taskKeys lists the keys of the task text in datasets, the most common ones first.
var taskKeys = []string{
	"language_instruction",
	"observation.natural_language_instruction",
	"natural_language_instruction",
	"observation.language_instruction",
	"instruction",
	"task",
	"episode_metadata.language_instruction",
	"episode_metadata.natural_language_instruction",
	"episode_metadata.task",
	"language_instruction_0",
	"language_instruction_1",
}

// chooseTask chooses the leaf of the episode's task.
func (d *Dataset) chooseTask(m *robocache.Mapping) {
	keys := taskKeys
	if m != nil && m.Task != "" {
		keys = []string{m.Task, m.SourceKey(m.Task)}
	}
	for _, k := range keys {
		for i := range d.schema.leaves {
			if l := &d.schema.leaves[i]; l.key == k && l.unsupported == "" && l.coding == textual &&
				!l.varies &&
				l.inner == 0 {
				d.taskSlot = l.slot
				return
			}
		}
	}
	if m != nil && m.Task != "" {
		guard.Fail(robocache.Misuse(
			"rlds",
			robocache.Where{"stream": m.Task},
			"the mapping's task is not a text of this dataset",
		))
	}
}

// describeStreams makes streams of the leaves.
func (d *Dataset) describeStreams(ctx context.Context, own ownMetadata) {
	for i := range d.schema.leaves {
		l := &d.schema.leaves[i]
		if l.unsupported != "" {
			d.addFinding(robocache.Finding{
				Severity:     robocache.SeverityWarning,
				Code:         "unsupported-feature",
				Where:        robocache.Where{"file": featuresName, "stream": l.key},
				Message:      l.unsupported + " is not read",
				NotDelivered: l.key,
			})
			continue
		}
		if d.absentFromAll(i) {
			continue
		}
		f := robocache.Feature{
			Key:     l.key,
			Kind:    robocache.KindNumeric,
			DType:   l.dtype,
			Shape:   append([]int(nil), l.shape...),
			FPS:     d.About.FPS,
			Default: !l.step,
			Masked:  l.optional && l.coding == plain,
		}
		if len(f.Shape) == 0 && !l.varies {
			f.Shape = []int{1}
		}
		if l.varies {
			f.Shape = append([]int{-1}, l.shape...)
		}
		switch l.coding {
		case textual:
			f.Kind, f.DType, f.Shape = robocache.KindText, robocache.String, []int{1}
			if l.varies || l.inner > 0 {
				f.Kind, f.DType = robocache.KindEvent, robocache.JSON
			}
		case frame, floatPNG:
			f.Kind = robocache.KindImage
			f.Height, f.Width, f.Channels = l.shape[0], l.shape[1], l.shape[2]
			if f.Height == 0 || f.Width == 0 {
				d.measureImages(ctx, i, &f)
				f.Shape[0], f.Shape[1] = f.Height, f.Width
			}
			f.StateDepth()
		}
		if l.labels > 0 {
			f.Interpolation = "nearest"
			f.Names = d.readLabels(ctx, l)
		}
		d.markRelative(&f, l)
		d.byKey[f.Key] = source{leaf: i}
		d.About.Features = append(d.About.Features, f)
		if l.nested() && l.coding == plain {
			g := robocache.Feature{
				Key:   l.key + ".lengths",
				Kind:  robocache.KindNumeric,
				DType: robocache.Int64,
				Shape: []int{-1},
				FPS:   d.About.FPS,
			}
			d.byKey[g.Key] = source{leaf: i, nested: true}
			d.About.Features = append(d.About.Features, g)
		}
	}
	d.reportLacking()
	if own.Robocache == nil {
		return
	}
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if f.Key == own.Robocache.Timestamps {
			f.Default = true
		}
		if n, ok := own.Robocache.Features[f.Key]; ok {
			f.Unit, f.Interpolation = cmp.Or(n.Unit, f.Unit), n.Interpolation
			if f.Kind == robocache.KindNumeric && !f.Ragged() &&
				robocache.CheckRotations(n.Rotations, f.Elements()) == nil {
				f.Rotations = n.Rotations
			}
			if n.Relative != nil && f.Kind == robocache.KindNumeric {
				f.Relative, f.RelativeReason = relativeNote(n.Relative, f)
				f.Unsummable = n.Unsummable
			}
			if n.Kind == robocache.KindPointCloud && f.Kind == robocache.KindNumeric && f.Ragged() {
				f.Kind = n.Kind
			}
			if f.Names == nil {
				f.Names = n.Names
			}
		}
	}
}

// relativeNote returns the relative channels that our writer noted of a stream.
func relativeNote(channels []int, f *robocache.Feature) ([]int, string) {
	relative := robocache.Relative{Channels: channels, None: len(channels) == 0}
	out, err := relative.Of(f)
	if err != nil {
		return nil, ""
	}
	return out, "as " + metadataName + " states"
}

// readLabels reads the names of a class label's classes from a separate file.
func (d *Dataset) readLabels(ctx context.Context, l *leaf) json.RawMessage {
	b, err := store.ReadFile(
		ctx,
		d.Bytes,
		strings.ReplaceAll(l.name, "/", "-")+".labels.txt",
		1<<20,
	)
	if err != nil {
		return nil
	}
	var names []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			names = append(names, line)
		}
	}
	return guard.Must(json.Marshal(map[string][]string{"labels": names}))
}
