package rlds

import (
	"strings"

	"github.com/goatnote-inc/robocache"
)

// rates holds the control rates of Open X-Embodiment datasets, as LeRobot's converter lists them.
// The files do not state them.
var rates = map[string]robocache.Rate{}

func init() {
	table := []struct {
		rate  robocache.Rate
		names string
	}{
		{robocache.Rate{Num: 1, Den: 1}, "robo_net uiuc_d3field"},
		{robocache.Rate{Num: 2, Den: 1}, "ucsd_kitchen_dataset"},
		{
			robocache.Rate{Num: 3, Den: 1},
			"fractal20220817_data nyu_door_opening_surprising_effectiveness nyu_door_opening " +
				"nyu_rot_dataset nyu_rot io_ai_tech nyu_franka_play_dataset nyu_franka_play " +
				"ucsd_pick_and_place_dataset ucsd_pick_and_place spoc spoc_robot gnm_recon " +
				"berkeley_gnm_recon",
		},
		{robocache.Rate{Num: 15, Den: 4}, "dobbe dobb_e"},
		{
			robocache.Rate{Num: 5, Den: 1},
			"bridge bridge_dataset bridge_orig bridge_oxe bridge_openx bridge_v2 " +
				"bridge_data_v2 berkeley_autolab_ur5 robo_set roboset berkeley_mvp " +
				"dlr_edan_shared_control dlr_edan stanford_robocook cmu_play_fusion " +
				"gnm_cory_hall berkeley_gnm_cory_hall",
		},
		{
			robocache.Rate{Num: 10, Den: 1},
			"kuka jaco_play berkeley_cable_routing roboturk language_table " +
				"columbia_cairlab_pusht_real columbia_pusht_real stanford_hydra_dataset " +
				"stanford_hydra furniture_bench_dataset furniture_bench " +
				"cmu_franka_exploration_dataset cmu_franka_exploration bc_z " +
				"utokyo_pr2_opening_fridge utokyo_pr2_tabletop_manipulation " +
				"utokyo_xarm_pick_and_place utokyo_xarm_bimanual kaist_nonprehensile kaist " +
				"tokyo_u_lsmo dlr_sara_pour dlr_sara_grid_clamp " +
				"imperialcollege_sawyer_wrist_cam imperialcollege_sawyer " +
				"berkeley_fanuc_manipulation berkeley_fanuc cmu_playing_with_food " +
				"cmu_food_manipulation cmu_stretch gnm_sac_son berkeley_gnm_sac_son fmb " +
				"fmb_dataset usc_cloth_sim",
		},
		{robocache.Rate{Num: 25, Den: 2}, "asu_table_top asu_table_top_dataset"},
		{robocache.Rate{Num: 15, Den: 1}, "taco_play droid droid_100"},
		{
			robocache.Rate{Num: 20, Den: 1},
			"viola stanford_kuka_multimodal_dataset stanford_kuka_multimodal " +
				"austin_buds_dataset austin_buds austin_sailor_dataset austin_sailor " +
				"austin_sirius_dataset austin_sirius maniskill_dataset maniskill " +
				"iamlab_cmu_pickup_insert iamlab_cmu utaustin_mutex plex_robosuite",
		},
		{robocache.Rate{Num: 30, Den: 1}, "toto berkeley_rpt conq_hose_manipulation conq_hose"},
	}
	for _, t := range table {
		for _, n := range strings.Fields(t.names) {
			rates[n] = t.rate
		}
	}
}

// rateOf returns the rate of a dataset by the name in dataset_info.json. The long suffix of the
// Open X copies is ignored.
func rateOf(name string) (robocache.Rate, bool) {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, n := range []string{name, strings.TrimSuffix(name, "_converted_externally_to_rlds")} {
		for _, n := range []string{n, strings.TrimSuffix(n, "_dataset")} {
			if r, ok := rates[n]; ok {
				return r, true
			}
		}
	}
	return robocache.Rate{}, false
}
