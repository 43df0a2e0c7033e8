package bag

import (
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// channelOrderHint returns the advice to state the channel order.
func channelOrderHint() string {
	return "Pass " + robocache.Option("options", "channel_order", "rgb") +
		" or bgr (the order of OpenCV); camera.image_raw=bgr states it for one camera."
}

// parseChannelOrder parses "bgr", or orders of cameras such as "left.image_raw=bgr,right=rgb".
func parseChannelOrder(text string) (orders map[string]string, ok bool) {
	orders = map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, order, named := strings.Cut(part, "=")
		if !named {
			key, order = "", part
		}
		if order != "rgb" && order != "bgr" || named && key == "" {
			return nil, false
		}
		orders[key] = order
	}
	return orders, true
}

// applyChannelOrder passes the channel orders in the options and the mapping to the cameras. An
// order without a camera applies to cameras whose encoding states none. It records the finding
// channel-order-unknown for each camera whose order is still not known.
func (d *Dataset) applyChannelOrder() {
	stated := map[*topic]bool{}
	general := d.opt.ChannelOrder[""]
	for _, t := range d.topics {
		if general != "" && t.dec.UnstatedChannelOrder() != "" {
			const force = false // an encoding that states an order keeps it
			stated[t] = t.dec.SetChannelOrder(general, force)
		}
	}
	if general != "" && len(stated) == 0 {
		guard.Fail(
			robocache.Misuse(
				"open",
				robocache.Where{"option": "channel_order"},
				"no camera has an encoding without a channel order",
			).
				WithHint("Name the camera to override its encoding, for example %s.",
					robocache.Option("options", "channel_order", "camera.image_raw=bgr")),
		)
	}
	if d.opt.Map != nil {
		for _, m := range d.opt.Map.Streams {
			for _, from := range m.From {
				if m.ChannelOrder != "" {
					d.forceChannelOrder(from, m.ChannelOrder, stated)
				}
			}
		}
	}
	for key, order := range d.opt.ChannelOrder {
		if key != "" {
			d.forceChannelOrder(key, order, stated)
		}
	}
	for _, t := range d.topics {
		if encoding := t.dec.UnstatedChannelOrder(); encoding != "" && !stated[t] {
			d.recordFinding(-1, robocache.Finding{
				Severity: robocache.SeverityWarning, Code: "channel-order-unknown",
				Where: robocache.Where{"stream": t.key},
				Message: fmt.Sprintf("the encoding %s does not state the order of the channels: "+
					"they are read as red, green, blue", encoding),
				Hint: channelOrderHint(),
			})
		}
	}
}

// forceChannelOrder overrides the channel order of the cameras that match key, and adds them to
// stated. key is a topic, a stream, or the end of a topic's key. It fails the call if no camera
// matches.
func (d *Dataset) forceChannelOrder(key, order string, stated map[*topic]bool) {
	matched := false
	var cameras []string
	for _, t := range d.topics {
		if t.ownsKey(key) || strings.HasSuffix(t.key, "."+key) {
			const force = true
			if t.dec.SetChannelOrder(order, force) {
				matched, stated[t] = true, true
			}
		}
		if t.dec.HasRawColour() {
			cameras = append(cameras, t.key)
		}
	}
	if !matched {
		guard.Fail(
			robocache.Misuse(
				"open",
				robocache.Where{"option": "channel_order", "stream": key},
				"no camera of this name has raw colour images",
			).
				Expected("one of "+strings.Join(cameras, ", "), key),
		)
	}
}
