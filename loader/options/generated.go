package options

// EpisodeID is a key that is available for any dataset: the index of the sample's episode, as text.
const EpisodeID = "episode_id"

// GeneratedKeys are keys that are available for any dataset on request. They have the names of
// LeRobot's columns: the number of the row among those of all episodes, the recorded number of its
// episode, and the number of the row in it. With hz or an anchor "index" is the number of the
// sample, as Locate accepts it.
var GeneratedKeys = []string{"index", "episode_index", "frame_index"}
