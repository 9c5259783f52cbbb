"""Layers of CLINC150, whose 150 intents are 15 of each of ten domains, beside those of EVoC.

    python benchmarks/layers.py            # all 22,500 texts, two minutes
    python benchmarks/layers.py --quick    # three domains of it

Of the layers that ``n_clusters="auto"`` finds, and of EVoC's, the one whose number of clusters is
nearest to 10 is held against the domains and the one nearest to 150 against the intents, and each
against the other level. No layer is chosen by labels. EVoC's noise counts as one more cluster.
"""

import sys
import time
import warnings
from typing import Any

import numpy as np
from benchmarks.harness.datasets import load_dataset
from sklearn.metrics import normalized_mutual_info_score

from _shared import Table, keep, options_of, rows_of, verdict
from prcut import PRCut

DOMAINS = {
    "banking": "freeze_account routing pin_change bill_due pay_bill account_blocked interest_rate "
    "min_payment bill_balance transfer order_checks balance spending_history transactions "
    "report_fraud",
    "credit cards": "replacement_card_duration expiration_date damaged_card improve_credit_score "
    "report_lost_card card_declined credit_limit_change apr redeem_rewards credit_limit "
    "rewards_balance application_status credit_score new_card international_fees",
    "kitchen": "food_last confirm_reservation how_busy ingredients_list calories nutrition_info "
    "recipe restaurant_reviews restaurant_reservation meal_suggestion restaurant_suggestion "
    "cancel_reservation ingredient_substitution cook_time accept_reservations",
    "home": "what_song play_music todo_list_update reminder reminder_update calendar_update "
    "order_status update_playlist shopping_list calendar next_song order todo_list "
    "shopping_list_update smart_home",
    "auto": "current_location oil_change_when oil_change_how uber traffic tire_pressure "
    "schedule_maintenance gas mpg distance directions last_maintenance gas_type tire_change "
    "jump_start",
    "travel": "plug_type travel_notification translate flight_status international_visa timezone "
    "exchange_rate travel_suggestion travel_alert vaccines lost_luggage book_flight book_hotel "
    "carry_on car_rental",
    "utility": "weather alarm date find_phone share_location timer make_call calculator definition "
    "measurement_conversion flip_coin spelling time roll_dice text",
    "work": "pto_request_status next_holiday insurance_change insurance meeting_schedule payday "
    "taxes income rollover_401k pto_balance pto_request w2 schedule_meeting direct_deposit "
    "pto_used",
    "small talk": "who_made_you meaning_of_life who_do_you_work_for do_you_have_pets "
    "what_are_your_hobbies fun_fact what_is_your_name where_are_you_from goodbye thank_you "
    "greeting tell_joke are_you_a_bot how_old_are_you what_can_i_ask_you",
    "meta": "change_speed user_name whisper_mode yes change_volume no change_language repeat "
    "change_accent cancel sync_device change_user_name change_ai_name reset_settings maybe",
}
QUICK_DOMAINS = 3


def load(n_domains: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return embeddings, domains and intents of the texts of the first domains."""
    rows, intents = rows_of("clinc150")
    classes = load_dataset("clinc150", "all").classes
    place = {name: i for i, names in enumerate(DOMAINS.values()) for name in names.split()}
    domains = np.array([place[name] for name in classes])[intents]
    chosen = domains < n_domains
    return rows[chosen], domains[chosen], intents[chosen]


def nearest(layers: list[np.ndarray], wanted: int) -> np.ndarray:
    """Return the layer whose number of clusters is nearest, as a ratio."""

    def distance(labels: np.ndarray) -> float:
        return abs(float(np.log(len(np.unique(labels[labels >= 0])) / wanted)))

    return min(layers, key=distance)


def compare(n_domains: int) -> tuple[Table, dict[tuple[str, str], float]]:
    """Print the layers of both, and return the NMI of each layer with its own level."""
    rows, domains, intents = load(n_domains)
    table = Table(
        "method", "clusters of the layers", "layer", "NMI, domains", "NMI, intents", "CPU"
    )
    found: dict[tuple[str, str], float] = {}
    for method, fit in (("PRCut", _prcut), ("EVoC", _evoc)):
        start = time.process_time()
        layers = fit(rows)
        seconds = f"{time.process_time() - start:.0f} s"
        sizes = ", ".join(str(len(np.unique(one[one >= 0]))) for one in layers)
        for level, classes in (("domains", domains), ("intents", intents)):
            labels = nearest(layers, len(np.unique(classes)))
            scores = [normalized_mutual_info_score(one, labels) for one in (domains, intents)]
            found[method, level] = scores[level == "intents"]
            noise = f", {(labels < 0).mean():.0%} noise" if (labels < 0).any() else ""
            n_found = len(np.unique(labels[labels >= 0]))
            what = f"nearest the {level}: {n_found}{noise}"
            table.add(method, sizes, what, *(f"{score:.3f}" for score in scores), seconds)
    return table, found


def _prcut(rows: np.ndarray) -> list[np.ndarray]:
    return PRCut("auto", random_state=0).fit(rows).cluster_layers_


def _evoc(rows: np.ndarray) -> list[np.ndarray]:
    from evoc import EVoC

    model: Any = EVoC(random_state=0)
    model.fit(rows)
    return list(model.cluster_layers_)


def main() -> int:
    quick = options_of(__doc__, "three domains").parse_args().quick
    warnings.simplefilter("ignore")
    table, found = compare(QUICK_DOMAINS if quick else len(DOMAINS))
    if not quick:
        keep("layers", table)
    short = [
        f"{level}: NMI {found['PRCut', level]:.3f}, EVoC's layer has {found['EVoC', level]:.3f}"
        for level in ("domains", "intents")
        if found["PRCut", level] < found["EVoC", level]
    ]
    return verdict(short, "the layers are nearer to both levels than EVoC's")


if __name__ == "__main__":
    sys.exit(main())
