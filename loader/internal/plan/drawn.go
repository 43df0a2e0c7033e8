package plan

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
)

// addDrawn adds the columns of the keys of Choose and Goal. In file order nothing is drawn for a
// key of Choose: it holds its first stream.
func (src *Source) addDrawn() error {
	for _, x := range src.Config.DrawnKeys() {
		draw := &column.Draw{Number: column.KeyNumber("draw " + x.Key), IsGoal: x.IsGoal}
		if x.IsGoal {
			draw.Number = column.KeyNumber("draw goal")
		}
		for _, stream := range x.Streams {
			c, err := src.drawnColumn(&x, stream)
			if err != nil {
				return err
			}
			draw.Alternatives = append(draw.Alternatives, c)
			if err := checkAlternative(draw.Alternatives[0], c, false); err != nil {
				return err
			}
		}
		if !x.IsGoal && src.Config.Shuffle == order.FileOrder {
			draw.Alternatives = draw.Alternatives[:1]
		}
		first := draw.Alternatives[0]
		if x.IsGoal || len(draw.Alternatives) > 1 {
			first.Draw = draw
		}
		src.appendColumn(first)
		for _, c := range draw.Alternatives[1:] {
			src.drawnCount++
			src.prepareColumn(c, firstDrawnNumber+src.drawnCount)
		}
	}
	return nil
}

// limitGoals excludes the last rows of each episode from the goals.
func (src *Source) limitGoals(rows int) {
	for _, c := range src.Columns {
		if c.Draw != nil {
			c.Draw.LastRows = max(rows, 0)
		}
	}
}

// shareFrames makes drawn cameras use the decoded frames of the same camera, if the batch also
// holds it undrawn.
func (src *Source) shareFrames() {
	for c := range src.ImageColumns() {
		if camera := src.ImageColumn(c.StreamKey()); c.Stream != "" && camera != nil {
			c.ShareFrames(camera)
		}
	}
}

// firstDrawnNumber is larger than the number of any column of a batch.
const firstDrawnNumber = 1 << 15

// drawnColumn returns the column of a drawn key that reads one of its streams.
func (src *Source) drawnColumn(x *options.DrawnKey, stream string) (*column.Column, error) {
	info, option := src.Dataset.Info(), "choose"
	if x.IsGoal {
		option = "goal"
	}
	if task := src.taskColumn(); task != nil && stream == task.Key {
		task.Key, task.Stream = x.Key, stream
		var err error
		task.Time, err = newTiming(src.Dataset, &src.Timebase, nil, x.Key, &src.Config)
		return task, err
	}
	f := info.Feature(stream)
	if f == nil {
		return nil, options.MissingKey(info, option, stream, options.FeatureKeys(info))
	}
	switch f.Kind {
	case robocache.KindVideo, robocache.KindImage, robocache.KindText:
	default:
		if f.Kind == robocache.KindNumeric && !f.Ragged() {
			break
		}
		return nil, robocache.Unsupported("loader", robocache.Where{"stream": stream},
			"%s: %s of rows of varying length or events", x.Key, robocache.Option(option)).
			WithHint("Name images, texts, or numbers of one length.")
	}
	return src.featureColumn(f, x.Key)
}

// checkAlternatives rejects choices whose streams do not fit into one tensor. The sizes of frames
// must be known.
func (src *Source) checkAlternatives() error {
	for _, first := range src.Columns {
		for _, c := range first.Alternatives()[1:] {
			if err := checkAlternative(first, c, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAlternative rejects a stream of a choice that does not fit into the tensor of the first one.
func checkAlternative(first, c *column.Column, isSized bool) error {
	a, b := first.Image(), c.Image()
	isEqual := (a == nil) == (b == nil) && first.OutDType == c.OutDType
	switch {
	case !isEqual || first.Feature == nil || c.Feature == nil:
	case first.Table() != nil || c.Table() != nil:
		isEqual = first.Table() != nil && c.Table() != nil &&
			slices.Equal(first.Feature.Shape, c.Feature.Shape)
	case a != nil:
		isEqual = a.IsStill == b.IsStill && a.Spec.Pixel == b.Spec.Pixel &&
			(!isSized || a.Height == b.Height && a.Width == b.Width)
	}
	if isEqual {
		return nil
	}
	return robocache.Misuse("loader", robocache.Where{"stream": c.StreamKey()},
		"choose: the streams of %s have different forms", first.Key).
		Expected(columnForm(first), columnForm(c)).
		WithHint("%s brings color images to one size.", robocache.Option("image_size"))
}

// checkEqualNorms rejects a choice of numbers whose streams would be normalized by different
// numbers, because its values could not be restored.
func checkEqualNorms(c normalized, low, high []float64, stats robocache.Stats) error {
	for _, one := range c.Alternatives()[1:] {
		if c.norm.Own() != nil || !one.HasNumbers() {
			break
		}
		a, b, err := normVectors(&c.norm, one, stats[one.StreamKey()])
		if err != nil {
			return err
		}
		if !slices.Equal(a, low) || !slices.Equal(b, high) {
			numbers := map[string]any{"mode": c.norm.Mode, "low": low, "high": high}
			if c.norm.Mode == "mean_std" {
				numbers = map[string]any{"mode": c.norm.Mode, "mean": low, "std": high}
			}
			return robocache.Misuse("loader", robocache.Where{"stream": one.StreamKey()},
				"normalize: the streams of %s have different statistics", c.Key).
				WithHint("Pass one set of numbers for all: %s.",
					robocache.Option("normalize", c.Key, numbers))
		}
	}
	return nil
}

// columnForm describes the values of a column.
func columnForm(c *column.Column) string {
	i := c.Image()
	switch {
	case c.Table() != nil:
		return fmt.Sprintf("%s %v", c.OutDType, c.Feature.Shape)
	case i == nil:
		return c.OutDType.String()
	case i.IsStill:
		return fmt.Sprintf("%s still images, %d×%d", c.OutDType, i.Width, i.Height)
	}
	return fmt.Sprintf("%s video, %d×%d", c.OutDType, i.Width, i.Height)
}
